// A lane of `add_beats`: for a and b below a prime of 50 bits, a + b modulo it.
//
// a + b is below 2^51, and less the prime, if it is not below it, again below it.
module lane_adder (
    input  logic [50:0] a,
    input  logic [50:0] b,
    input  logic [50:0] prime,
    output logic [50:0] sum
);
  wire [51:0] whole = {1'b0, a} + {1'b0, b};
  wire [51:0] less = whole - {1'b0, prime};
  assign sum = less[51] ? whole[50:0] : less[50:0];
endmodule
