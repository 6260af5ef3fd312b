// An array: multiplies numbers modulo others, as many at a time as its ring has room for.
//
// A row has two multipliers and a digit b_i of 17 bits of the factor b. The factor a and the modulus pass it in words
// of 26 bits. With M'' in the modulus' place and M' = 2^17·M'' − 1,
//
//     t_0 = c·2^17      q_i = t_i mod 2^17      t_(i+1) = ⌊t_i / 2^17⌋ + a·b_i + q_i·M''
//
// After n = rows·passes rows, with N = 17·(n−1), B = b·2^shift cut to n digits, T = t_n and Q = Σ q_i·2^(17·(i−1))
// for i from 1 to n−1 (q_0 is 0),
//
//     a · B + c  =  2^N · T − Q · M'
//
// With a modulus m, M'' = (k·m+1) / 2^17 for k = −m⁻¹ mod 2^17, so M' = k·m. Without, M'' = 0 and M' = −1: T and Q are
// the high and low part of the plain product; if a is an inverse modulo a power of two, Q is an exact quotient.
//
// Bounds, for m of `bits` bits: t is below 2^17·(a+M'')·(1+2^-15); an array's numbers have 26·words+1 bits. In chains,
// if a and b are below 2·M', shift is 0, words ≥ (bits+35)/26 and 17·(n−1) ≥ bits+20, T is below 2·M'. If a and b are
// below m and 17·(n−1) − shift ≥ 64·words64, T is below M'+2·m. Both are below 2^18·m, which `reduce` accepts.
//
//     jobs ─► store (operands from memory, two numbers ahead) ─► ring of rows ─► result (beats to memory)
//
// A job is one number. Each is done once, in the order in which they leave the ring: numbers of fewer passes
// overtake. Of w words and p passes one keeps the ring busy for w · p cycles. When numbers follow each other,
// that is all it costs, if w · p is above what the store takes, 2w + ROWS · p + 13 and w + 4 more with c, as
// it is from 520 bits on (with c from 700), and if the numbers in flight have 5 · ROWS + 4 words together. No
// time depends on the values of operands.
//
// Cycle by cycle, as in pictures/product.svg: a product modulo a number of 512 bits, in 8 rows, with a memory that
// answers after 100 cycles. Operands are cut one after the other, a word or a digit a cycle.
//
//     0         the array takes the job; it asks for a, m and b in the next three cycles
//     101-106   their six beats come
//     200       the ring takes the number, whose 22 words enter without a gap; a row has them 5 cycles after the
//               one before it
//     203       pass 1 at row 0; the other four passes follow 5 · 8 + 4 = 44 cycles apart
//     419-440   the result leaves the last row
//     445, 455  its two beats are written
//
// A lone number of 22 words keeps half of the rows busy; a second one would fit into the gaps.
//
// Karatsuba does not pay. Half of a product modulo m is a · b, half is q · m. Three products of half the size save a
// quarter of a · b. But digits of q are found one after the other as the sum goes by, and q · m cannot be halved
// before q is there: 0.75 + 1 of 2, 18.1 k of 20.7 k multiplier-cycles for 2048 bits, if the multipliers of a · b had
// other work meanwhile, and more than now if not. A q made beforehand, a · b · m′ mod R, costs at least half a product:
// 0.75 + 0.5 + 0.75 is 2 again. So 16 k is out of reach.
module array #(
    parameter ROWS = 8,      // 2 to 22: see packer.sv
    parameter NUMBERS = 16,  // in flight, a power of two
    parameter TAG = 4
) (
    input  logic                      clk,
    input  logic                      reset,
    input  logic                      job_valid,
    output logic                      job_ready,
    input  logic [31:0]               job_a_at, job_b_at, job_c_at, job_m_at, job_d_at,
    input  logic [7:0]                job_a_length, job_b_length, job_c_length, job_m_length, job_d_length,
    input  logic [8:0]                job_words,
    input  logic [7:0]                job_passes,
    input  logic [15:0]               job_shift,
    input  logic                      job_with_c, job_with_m, job_high, job_low,
    input  logic [TAG-1:0]            job_tag,
    output logic                      read_valid,
    input  logic                      read_ready,
    output logic [31:0]               read_at,
    output logic [7:0]                read_length,
    input  logic                      beat_valid,
    input  logic [511:0]              beat_data,
    output logic                      write_valid,
    input  logic                      write_ready,
    output logic [31:0]               write_at,
    output logic [511:0]              write_data,
    output logic                      write_last,
    output logic [TAG-1:0]            write_tag,
    output logic [$clog2(ROWS+1)-1:0] busy
);
  localparam NW = $clog2(NUMBERS);

  logic begin_valid, end_valid, digit_valid, room;
  logic new_valid, new_taken, new_high, new_read, new_over;
  logic [NW-1:0] begin_number, end_number, digit_number, new_number, out_number, quotient_number;
  logic [TAG+56:0] begin_result;
  logic [5:0] digit_pass, quotient_pass;
  logic [$clog2(ROWS)-1:0] digit_row;
  logic [16:0] digit;
  logic [17*ROWS-1:0] quotients;
  logic [8:0] new_words;
  logic [6:0] new_passes;
  logic [26:0] new_t, out_t;
  logic [25:0] new_a, new_m;
  logic word_valid, result_valid, quotient_read;

  store #(
      .ROWS(ROWS),
      .NUMBERS(NUMBERS),
      .TAG(TAG)
  ) store (
      .clk(clk),
      .reset(reset),
      .job_valid(job_valid),
      .job_ready(job_ready),
      .job_a_at(job_a_at),
      .job_b_at(job_b_at),
      .job_c_at(job_c_at),
      .job_m_at(job_m_at),
      .job_d_at(job_d_at),
      .job_a_length(job_a_length),
      .job_b_length(job_b_length),
      .job_c_length(job_c_length),
      .job_m_length(job_m_length),
      .job_d_length(job_d_length),
      .job_words(job_words),
      .job_passes(job_passes),
      .job_shift(job_shift),
      .job_with_c(job_with_c),
      .job_with_m(job_with_m),
      .job_high(job_high),
      .job_low(job_low),
      .job_tag(job_tag),
      .read_valid(read_valid),
      .read_ready(read_ready),
      .read_at(read_at),
      .read_length(read_length),
      .beat_valid(beat_valid),
      .beat_data(beat_data),
      .begin_valid(begin_valid),
      .begin_number(begin_number),
      .begin_result(begin_result),
      .end_valid(end_valid),
      .end_number(end_number),
      .digit_valid(digit_valid),
      .digit_row(digit_row),
      .digit_number(digit_number),
      .digit_pass(digit_pass),
      .digit(digit),
      .new_valid(new_valid),
      .new_taken(new_taken),
      .new_number(new_number),
      .new_words(new_words),
      .new_passes(new_passes),
      .new_high(new_high),
      .new_read(new_read),
      .new_over(new_over),
      .new_t(new_t),
      .new_a(new_a),
      .new_m(new_m)
  );

  ring #(
      .ROWS(ROWS),
      .NUMBERS(NUMBERS)
  ) ring (
      .clk(clk),
      .reset(reset),
      .new_valid(new_valid && room),
      .new_taken(new_taken),
      .new_number(new_number),
      .new_words(new_words),
      .new_passes(new_passes),
      .new_high(new_high),
      .new_read(new_read),
      .new_over(new_over),
      .new_t(new_t),
      .new_a(new_a),
      .new_m(new_m),
      .digit_valid(digit_valid),
      .digit_row(digit_row),
      .digit_number(digit_number),
      .digit_pass(digit_pass),
      .digit(digit),
      .word_valid(word_valid),
      .result_valid(result_valid),
      .out_number(out_number),
      .out_t(out_t),
      .quotient_read(quotient_read),
      .quotient_number(quotient_number),
      .quotient_pass(quotient_pass),
      .quotients(quotients),
      .busy(busy)
  );

  result #(
      .ROWS(ROWS),
      .NUMBERS(NUMBERS),
      .TAG(TAG)
  ) result (
      .clk(clk),
      .reset(reset),
      .begin_valid(begin_valid),
      .begin_number(begin_number),
      .begin_result(begin_result),
      .end_valid(end_valid),
      .end_number(end_number),
      .new_taken(new_taken),
      .new_words(new_words),
      .new_high(new_high),
      .room(room),
      .word_valid(word_valid),
      .result_valid(result_valid),
      .in_number(out_number),
      .in_t(out_t),
      .quotient_read(quotient_read),
      .quotient_number(quotient_number),
      .quotient_pass(quotient_pass),
      .quotients(quotients),
      .write_valid(write_valid),
      .write_ready(write_ready),
      .write_at(write_at),
      .write_data(write_data),
      .write_last(write_last),
      .write_tag(write_tag)
  );
endmodule
