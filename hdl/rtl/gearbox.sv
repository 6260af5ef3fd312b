// Cuts words of 64 bits into symbols of 26 or of 17 bits, the lowest first.
//
// Before the first word come `offset` zero bits. `symbol` has one bit more than a symbol, the lowest of the
// next one: the last word of a number may keep it. A symbol leaves when it is there, one a cycle if words
// are.
//
// `bits` holds `have` bits, zeros above. A word is taken when at most 26 bits are left under it: 26 + 64 = 90
// bits are the most. At the start there are at most 63. While more than 26 bits are left a symbol and its
// extra bit are there, so that a word a cycle at most, and 26/64 words a cycle in the long run, keep symbols
// coming.
module gearbox (
    input  logic        clk,
    input  logic        start,   // instead of anything else in this cycle
    input  logic [5:0]  offset,
    input  logic        narrow,  // symbols of 17 bits
    input  logic        word_valid,
    output logic        word_ready,
    input  logic [63:0] word,
    output logic        symbol_valid,
    output logic [26:0] symbol
);
  logic [89:0] bits;
  logic [6:0] have;

  wire [6:0] width = narrow ? 7'd17 : 7'd26;
  wire [6:0] after = symbol_valid ? have - width : have;
  wire [89:0] rest = !symbol_valid ? bits : narrow ? {17'd0, bits[89:17]} : {26'd0, bits[89:26]};

  assign symbol_valid = have > width;
  assign symbol = bits[26:0];
  assign word_ready = after <= 26;

  always_ff @(posedge clk) begin
    if (start) begin
      bits <= 0;
      have <= {1'b0, offset};
    end else if (word_valid && word_ready) begin
      bits <= rest | {26'd0, word} << after[4:0];
      have <= after + 64;
    end else begin
      bits <= rest;
      have <= after;
    end
  end
endmodule
