// Proves of `lane_adder`: for residues modulo a prime of 50 bits it is their sum modulo that prime.
module lane_adder_proof (
    input logic [50:0] a, b, prime
);
  logic [50:0] sum;
  lane_adder lane_adder (.a(a), .b(b), .prime(prime), .sum(sum));
  wire [51:0] whole = {1'b0, a} + {1'b0, b};
  always @* begin
    assume (prime < 51'd1 << 50 && a < prime && b < prime);
    assert (sum < prime && (whole == {1'b0, sum} || whole == {1'b0, sum} + {1'b0, prime}));
  end
endmodule
