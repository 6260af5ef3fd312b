// A value, some cycles later: a shift register without reset, for the shift-register LUTs of an FPGA.
module delay #(
    parameter WIDTH = 1,
    parameter CYCLES = 2
) (
    input  logic             clk,
    input  logic [WIDTH-1:0] in,
    output logic [WIDTH-1:0] out
);
  // A register each: simulators move them faster than they shift one long one.
  for (genvar i = 0; i < CYCLES; i++) begin : after
    logic [WIDTH-1:0] value;
    if (i == 0) begin : first
      always_ff @(posedge clk) value <= in;
    end else begin : other
      always_ff @(posedge clk) value <= after[i-1].value;
    end
  end
  assign out = after[CYCLES-1].value;
endmodule
