// A value, some cycles later: a shift register without reset, for the shift-register LUTs of an FPGA.
module delay #(
    parameter WIDTH = 1,
    parameter CYCLES = 2  // from 2
) (
    input  logic             clk,
    input  logic [WIDTH-1:0] in,
    output logic [WIDTH-1:0] out
);
  logic [WIDTH*CYCLES-1:0] line;
  always_ff @(posedge clk) line <= {line[WIDTH*(CYCLES-1)-1:0], in};
  assign out = line[WIDTH*CYCLES-1-:WIDTH];
endmodule
