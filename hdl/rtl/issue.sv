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

  // verilator lint_off UNUSEDSIGNAL
  logic [511:0] held;  // its addresses are those of the first item
  // verilator lint_on UNUSEDSIGNAL
  logic [31:0] left, a_at, b_at, c_at, m_at, d_at;

  wire begins = idle && start;
  assign idle = left == 0;
  assign job_valid = left != 0;
  // The addresses lie side by side, in this order.
  assign job = {held[511:FIELD_D_AT_LOW+32], d_at, m_at, c_at, b_at, a_at, held[FIELD_A_AT_LOW-1:0]};

  function automatic logic [31:0] next(input logic [31:0] at, input logic [15:0] stride);
    next = at + {16'd0, stride};
  endfunction

  always_ff @(posedge clk) if (begins) held <= descriptor;
  always_ff @(posedge clk) begin
    if (reset) begin
      left <= 0;
    end else if (begins) begin
      job_tag <= tag;
      left <= descriptor[FIELD_COUNT_LOW+:32];
      a_at <= descriptor[FIELD_A_AT_LOW+:32];
      b_at <= descriptor[FIELD_B_AT_LOW+:32];
      c_at <= descriptor[FIELD_C_AT_LOW+:32];
      m_at <= descriptor[FIELD_M_AT_LOW+:32];
      d_at <= descriptor[FIELD_D_AT_LOW+:32];
    end else if (job_valid && job_ready) begin
      left <= left - 1;
      a_at <= next(a_at, held[FIELD_A_STRIDE_LOW+:16]);
      b_at <= next(b_at, held[FIELD_B_STRIDE_LOW+:16]);
      c_at <= next(c_at, held[FIELD_C_STRIDE_LOW+:16]);
      m_at <= next(m_at, held[FIELD_M_STRIDE_LOW+:16]);
      d_at <= next(d_at, held[FIELD_D_STRIDE_LOW+:16]);
    end
  end
endmodule
