// Takes a descriptor apart: one job for each item, in order, at `at + i · stride` of every operand.
//
// One job a cycle at most; a descriptor after the other.
module issue #(
    parameter TAG = 3
) (
    input  logic           clk,
    input  logic           reset,
    input  logic           start,       // while `idle`
    input  logic [511:0]   descriptor,
    input  logic [TAG-1:0] tag,
    output logic           idle,
    output logic           job_valid,
    input  logic           job_ready,
    output logic [511:0]   job,         // a descriptor of this item alone
    output logic [TAG-1:0] job_tag
);
  `include "registers.svh"

  logic [511:0] held;
  logic [31:0] left;

  assign idle = left == 0;
  assign job_valid = left != 0;
  assign job = held;

  function automatic logic [31:0] next(input logic [31:0] at, input logic [15:0] stride);
    next = at + {16'd0, stride};
  endfunction

  always_ff @(posedge clk) begin
    if (reset) begin
      left <= 0;
    end else if (idle && start) begin
      held <= descriptor;
      job_tag <= tag;
      left <= descriptor[FIELD_COUNT_LOW+:32];
    end else if (job_valid && job_ready) begin
      left <= left - 1;
      held[FIELD_A_AT_LOW+:32] <= next(held[FIELD_A_AT_LOW+:32], held[FIELD_A_STRIDE_LOW+:16]);
      held[FIELD_B_AT_LOW+:32] <= next(held[FIELD_B_AT_LOW+:32], held[FIELD_B_STRIDE_LOW+:16]);
      held[FIELD_C_AT_LOW+:32] <= next(held[FIELD_C_AT_LOW+:32], held[FIELD_C_STRIDE_LOW+:16]);
      held[FIELD_M_AT_LOW+:32] <= next(held[FIELD_M_AT_LOW+:32], held[FIELD_M_STRIDE_LOW+:16]);
      held[FIELD_D_AT_LOW+:32] <= next(held[FIELD_D_AT_LOW+:32], held[FIELD_D_STRIDE_LOW+:16]);
    end
  end
endmodule
