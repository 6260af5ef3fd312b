// A row of the ring: from t, a, m and a digit b it makes ⌊t / 2^17⌋ + a · b + q · m, with q = t mod 2^17.
//
// Numbers come and go as words, the lowest first, one a cycle without a gap. Words of a and m have 26 bits. A
// word of t has 27: its bit 26 weighs as much as bit 0 of the next word, so that no carry travels; the last
// word is not cut. For word j, with t_(j+1) = 0 after the last and acc_(-1) = 0,
//
//     s_j     = ⌊t_j / 2^17⌋ + (t_(j+1) mod 2^17) · 2^9
//     acc_j   = a_j · b + q · m_j + s_j
//     t'_j    = acc_j mod 2^26 + ⌊acc_(j-1) / 2^26⌋      (of the last word: acc_j, not cut)
//
// Bounds. A word of t is below 2^27, so s_j ≤ (2^10 - 1) + (2^17 - 1) · 2^9 = 2^26 + 511: 27 bits. Then acc_j
// ≤ 2 · (2^26 - 1) · (2^17 - 1) + 2^26 + 511 = 2^44 - 2^26 - 2^18 + 513: 44 bits, what it carries has 18. A
// new word is below 2^26 + 2^18 < 2^27. The last one is below 2^27 because the whole number is below 2^(26 ·
// words + 1), as array.sv bounds it: all words but the last weigh nothing or more.
//
// Latency 5 cycles, a word a cycle. Each product is one DSP48E2: factors, product and sum have registers (M
// of the second multiplier is a cycle later than of the first, whose sum it adds to by the cascade).
//
// Clock. Rows pass words to their neighbours alone, and the longest path in one is a DSP48E2 and an addition of 27
// bits: a rate at 300 MHz on an UltraScale+ rests on that. Nobody has placed a card there.
module row (
    input  logic        clk,
    input  logic        reset,
    input  logic        in_valid,
    input  logic        in_first,  // of the number's words; both low where `in_valid` is
    input  logic        in_last,
    input  logic [26:0] in_t,
    input  logic [25:0] in_a,
    input  logic [25:0] in_m,
    input  logic [16:0] in_digit,  // with the first word
    output logic        out_valid,
    output logic        out_first,
    output logic        out_last,
    output logic [26:0] out_t,
    output logic [25:0] out_a,
    output logic [25:0] out_m
);
  // A number behind a name says how many cycles after the input a register holds what belongs to word j.
  logic [14:0] marks;  // valid, first and last of 1 cycle after in the lowest bits, then of 2
  logic [25:0] a_1, m_1, m_2;
  logic [9:0] t_1;
  logic [16:0] b_1, q_1, q_2;
  logic [42:0] ab_2, qm_3;
  logic [26:0] s_2;
  logic [43:0] sum_3, acc_4;
  logic [17:0] carry_4;

  // Word j + 1 is at the input while word j is 1 cycle old.
  wire [16:0] next_t = marks[2] ? 17'd0 : in_t[16:0];

  always_ff @(posedge clk) begin
    marks <= reset ? 15'd0 : {marks[11:0], in_last, in_first, in_valid};

    if (in_first) begin
      b_1 <= in_digit;
      q_1 <= in_t[16:0];
    end
    a_1 <= in_a;
    m_1 <= in_m;
    t_1 <= in_t[26:17];

    ab_2 <= 43'(a_1) * 43'(b_1);
    s_2  <= {{1'b0, next_t} + {17'd0, t_1[9]}, t_1[8:0]};
    m_2  <= m_1;
    q_2  <= q_1;

    sum_3 <= {1'b0, ab_2} + {17'd0, s_2};
    qm_3  <= 43'(m_2) * 43'(q_2);

    acc_4 <= sum_3 + {1'b0, qm_3};

    // Before the first word nothing was carried.
    carry_4 <= marks[7] ? 18'd0 : acc_4[43:26];
    out_t   <= {marks[11] && acc_4[26], acc_4[25:0]} + {9'd0, carry_4};
  end

  assign {out_last, out_first, out_valid} = marks[14:12];
  delay #(.WIDTH(52), .CYCLES(5)) factors (.clk(clk), .in({in_a, in_m}), .out({out_a, out_m}));
endmodule
