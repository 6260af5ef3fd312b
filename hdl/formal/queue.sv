// Proves of `queue`, used as it says, for its first cycles after a reset: what is put in comes out, once and in the order
// of putting.
//
// Any one entry is watched: `before` counts those in front of it.
module queue_proof (
    input logic       clk,
    input logic       put,
    input logic       take,
    input logic [3:0] in,
    input logic       watch
);
  localparam DEPTH = 4;
  logic reset = 1, watched = 0, valid;
  logic [3:0] out, value;
  logic [2:0] count, before = 0;
  queue #(.WIDTH(4), .DEPTH(DEPTH)) queue (
      .clk(clk), .reset(reset), .put(put), .in(in), .valid(valid), .take(take), .out(out), .count(count)
  );

  wire begins = put && watch && !watched;
  always @(posedge clk) begin
    reset <= 0;
    if (reset) begin
      assume (!put && !take);
    end else begin
      // Who puts knows that there is room, who takes that there is something.
      assume (!put || count != DEPTH || take);
      assume (!take || valid);
      if (begins) begin
        watched <= 1;
        value <= in;
        before <= count - 3'(take);
      end else if (watched && take) begin
        if (before == 0) watched <= 0;
        before <= before - 1;
      end

      assert (count <= DEPTH && valid == (count != 0));
      if (watched) assert (before < count);
      if (watched && before == 0) assert (valid && out == value);
      cover (watched && before == 0 && take && put && count == DEPTH);
    end
  end
endmodule
