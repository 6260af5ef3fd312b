// A short first-in first-out queue in LUT RAM. What is put in is at the other end in the next cycle if it is
// the first there. Whoever puts into it knows that there is room.
module queue #(
    parameter WIDTH = 1,
    parameter DEPTH = 4  // a power of two
) (
    input  logic                   clk,
    input  logic                   reset,
    input  logic                   put,
    input  logic [WIDTH-1:0]       in,
    output logic                   valid,
    input  logic                   take,
    output logic [WIDTH-1:0]       out,
    output logic [$clog2(DEPTH):0] count
);
  localparam DW = $clog2(DEPTH);
  logic [WIDTH-1:0] entries[0:DEPTH-1];
  logic [DW-1:0] head, tail;

  assign valid = count != 0;
  assign out = entries[head];
  always_ff @(posedge clk) begin
    if (put) entries[tail] <= in;
    if (reset) begin
      head <= 0;
      tail <= 0;
      count <= 0;
    end else begin
      tail <= tail + DW'(put);
      head <= head + DW'(take);
      count <= count + (DW + 1)'(put) - (DW + 1)'(take);
    end
  end
endmodule
