// Packs symbols of 26 or of 17 bits into words of 64 bits, the lowest first, and fills up with zeros.
//
// What comes is a symbol, or ALIGN: zeros up to the next beat of 8 words, or END: zeros up to `limit` beats,
// then a new start. Words above `limit` beats are dropped. `limit` stays as it is until after END.
//
// `bits` holds the lowest `have` ≤ 63 bits of the word to come, zeros above: with a symbol at most 63 + 26 =
// 89 bits. Words are counted in 9 bits: of 22 rows and 64 passes Q has at most 374 words, ALIGN
// makes 376 of them, and T has 131 more; `limit` is at most 32 beats, 256 words. A symbol a cycle; of zeros, a word a cycle. A word is at the output
// a cycle after its last bit came.
module packer (
    input  logic        clk,
    input  logic        reset,
    input  logic [5:0]  limit,
    input  logic        valid,
    output logic        ready,
    input  logic [1:0]  kind,  // 0: 26 bits, 1: 17 bits, 2: ALIGN, 3: END
    input  logic [25:0] symbol,
    output logic        word_valid,
    input  logic        word_ready,
    output logic [63:0] word
);
  logic [63:0] bits;
  logic [5:0] have;
  logic [8:0] count;

  wire pads = kind == 2 && (have != 0 || count[2:0] != 0) || kind == 3 && count < {limit, 3'd0};
  wire go = !word_valid || word_ready;
  wire [6:0] after = {1'b0, have} + (kind == 1 ? 7'd17 : 7'd26);
  wire [89:0] full = {26'd0, bits} | (kind[1] ? 90'd0 : {64'd0, symbol} << have);
  wire makes = valid && (kind[1] ? pads : after[6]);
  assign ready = go && !(kind[1] && pads);

  always_ff @(posedge clk) begin
    if (reset) begin
      word_valid <= 0;
      bits <= 0;
      have <= 0;
      count <= 0;
    end else if (go) begin
      word_valid <= makes && count < {limit, 3'd0};
      word <= full[63:0];
      if (valid && !kind[1]) begin
        bits <= after[6] ? {38'd0, full[89:64]} : full[63:0];
        have <= after[5:0];
      end else if (valid) begin
        bits <= 0;
        have <= 0;
      end
      if (makes) count <= count + 1;
      else if (valid && kind == 3) count <= 0;
    end
  end
endmodule
