// The operand store: fetches the operands of jobs, and makes words and digits of them while the ring works.
//
//     job ─► requests ─► card memory ─► beats ─► words of 64 bits ─► gearbox ─┬─► a, m, t of two numbers
//            (up to JOBS ahead)                                               └─► digits of b
//
// Beats come when they like, and are taken at once: a request is made only when BEATS has room for all of its
// beats. The operands of a job are cut one after the other, a, m, c, b, a symbol a cycle. t_0 = c · 2^17 is c
// after 17 zero bits; `B = b · 2^shift` is b after shift / 64 words of zeros and shift mod 64 bits. Above its
// beats an operand is zero; what is above its symbols is dropped, a beat a cycle.
//
// The words lie in one of two banks, so that the next number is made while the ring takes one. The digits lie
// in the ring at the place of the number, 0..NUMBERS-1, which the job has from here on until its result is
// written.
//
// A number of w words and n digits takes 2w + n + 13 cycles, with c w + 4 more, and one for each beat that is
// not used up. In the ring it takes w · n / ROWS: more from w = 22, n = 40 (520 bits, 100 against 110 cycles)
// on.
module store #(
    parameter ROWS = 8,
    parameter NUMBERS = 16,
    parameter TAG = 4,
    parameter BEATS = 32,  // that an operand may have, a power of two
    parameter JOBS = 4
) (
    input  logic                       clk,
    input  logic                       reset,
    input  logic                       job_valid,
    output logic                       job_ready,
    input  logic [31:0]                job_a_at, job_b_at, job_c_at, job_m_at, job_d_at,
    input  logic [7:0]                 job_a_length, job_b_length, job_c_length, job_m_length, job_d_length,
    input  logic [8:0]                 job_words,
    input  logic [7:0]                 job_passes,
    input  logic [15:0]                job_shift,
    input  logic                       job_with_c, job_with_m, job_high, job_low,
    input  logic [TAG-1:0]             job_tag,
    output logic                       read_valid,
    input  logic                       read_ready,
    output logic [31:0]                read_at,
    output logic [7:0]                 read_length,
    input  logic                       beat_valid,
    input  logic [511:0]               beat_data,
    // What the result of a number needs to know, when it gets its place; and that its place is free again.
    output logic                       begin_valid,
    output logic [$clog2(NUMBERS)-1:0] begin_number,
    output logic [TAG+56:0]            begin_result,
    input  logic                       end_valid,
    input  logic [$clog2(NUMBERS)-1:0] end_number,
    // Digits of b.
    output logic                       digit_valid,
    output logic [$clog2(ROWS)-1:0]    digit_row,
    output logic [$clog2(NUMBERS)-1:0] digit_number,
    output logic [5:0]                 digit_pass,
    output logic [16:0]                digit,
    // The next number for the ring, and its words, the next one a cycle after `new_read`.
    output logic                       new_valid,
    input  logic                       new_taken,
    output logic [$clog2(NUMBERS)-1:0] new_number,
    output logic [8:0]                 new_words,
    output logic [6:0]                 new_passes,
    output logic                       new_high,
    input  logic                       new_read,
    input  logic                       new_over,
    output logic [26:0]                new_t,
    output logic [25:0]                new_a,
    output logic [25:0]                new_m
);
  localparam NW = $clog2(NUMBERS);
  localparam BW = $clog2(BEATS);
  localparam RW = $clog2(ROWS);
  localparam A = 0, M = 1, C = 2, B = 3;

  // Requests: of one job at a time, while the jobs before it wait to be cut.
  localparam JOB = TAG + 32 + 5 * 6 + 9 + 7 + 16 + 4;
  logic [127:0] at;
  logic [4*6-1:0] lengths;
  logic [3:0] wants;
  logic [BW:0] owed;  // beats that are asked for and not used
  logic [1:0] asks;
  logic job_waits, job_over;
  logic [JOB-1:0] job;
  logic [$clog2(JOBS):0] jobs;

  assign job_ready = wants == 0 && jobs != ($clog2(JOBS) + 1)'(JOBS);
  wire accept = job_valid && job_ready;
  always_comb begin
    asks = B;
    for (int i = B; i >= A; i--) if (wants[i]) asks = 2'(i);
  end
  wire [5:0] asks_length = lengths[6*asks+:6];
  assign read_valid = wants != 0 && owed <= (BW + 1)'(BEATS) - (BW + 1)'(asks_length);
  assign read_at = at[32*asks+:32];
  assign read_length = {2'd0, asks_length};
  wire asked = read_valid && read_ready;

  queue #(.WIDTH(JOB), .DEPTH(JOBS)) waiting (
      .clk(clk), .reset(reset), .put(accept), .valid(job_waits), .take(job_over), .out(job), .count(jobs),
      .in({job_tag, job_d_at, job_d_length[5:0], job_b_length[5:0], job_c_length[5:0], job_m_length[5:0],
           job_a_length[5:0], job_words, job_passes[6:0], job_shift,
           job_with_c, job_with_m, job_high, job_low})
  );
  // Lengths have 6 bits, passes 7.
  wire unused = &{job_a_length[7:6], job_b_length[7:6], job_c_length[7:6], job_m_length[7:6],
                  job_d_length[7:6], job_passes[7]};

  logic [TAG-1:0] tag;
  logic [31:0] d_at;
  logic [5:0] d_length, b_length, c_length, m_length, a_length;
  logic [8:0] words;
  logic [6:0] passes;
  logic [15:0] shift;
  logic with_c, with_m, high, low;
  assign {tag, d_at, d_length, b_length, c_length, m_length, a_length, words, passes, shift,
          with_c, with_m, high, low} = job;

  // Beats, and the next word of 64 bits.
  logic [511:0] beats[0:BEATS-1];
  logic [BW-1:0] beat_in, beat_out;
  logic [BW:0] here;
  logic [2:0] lane;
  logic [9:0] zeros;   // words of zeros before the operand
  logic [5:0] length;  // beats of it that are left
  logic word_valid, word_ready;
  logic [63:0] word;
  logic [511:0] beat;
  assign beat = beats[beat_out];

  localparam IDLE = 0, START = 1, CUT = 2, DROP = 3;
  logic [1:0] state, operand;
  wire refill = state == CUT && (!word_valid || word_ready);
  wire word_used = refill && zeros == 0 && length != 0 && here != 0;
  wire beat_used = word_used && lane == 7 || state == DROP && length != 0 && here != 0;

  // Symbols.
  logic symbol_valid;
  logic [26:0] symbol;
  localparam SW = ROWS > 8 ? $clog2(64 * ROWS + 1) : 10;
  logic [SW-1:0] symbols;  // that are left: words, or digits of up to 64 passes
  logic [8:0] index;
  logic [5:0] pass;
  logic [RW-1:0] row;
  wire made = state == CUT && symbol_valid;
  wire done = made && symbols == 1;
  gearbox gearbox (
      .clk(clk),
      .start(state == START),
      .offset(operand == C ? 6'd17 : operand == B ? shift[5:0] : 6'd0),
      .narrow(operand == B),
      .word_valid(state == CUT && word_valid),
      .word_ready(word_ready),
      .word(word),
      .symbol_valid(symbol_valid),
      .symbol(symbol)
  );

  // Places and banks.
  logic [NUMBERS-1:0] used;
  logic [NW-1:0] place;
  logic place_free;
  logic [1:0] full;
  logic fill, next, taken;  // the bank that is filled, the one that begins next, the one that the ring takes
  localparam BANK = NW + 9 + 7 + 3;
  logic [BANK-1:0] bank_0, bank_1;
  logic number_done;
  always_comb begin
    place = 0;
    place_free = 0;
    if (state == IDLE && job_waits && !full[fill]) for (int i = NUMBERS - 1; i >= 0; i--) begin
      if (!used[i]) begin
        place = NW'(i);
        place_free = 1;
      end
    end
  end
  assign begin_valid = place_free;
  assign begin_number = place;
  assign begin_result = {tag, d_at, d_length, words, passes, with_m, high, low};
  assign number_done = state == DROP && length == 0 && operand == B;
  assign job_over = number_done;

  always_ff @(posedge clk) begin
    if (beat_valid) beats[beat_in] <= beat_data;

    if (accept) begin
      at <= {job_b_at, job_c_at, job_m_at, job_a_at};
      lengths <= {job_b_length[5:0], job_c_length[5:0], job_m_length[5:0], job_a_length[5:0]};
    end

    if (refill) begin
      word <= zeros == 0 && length != 0 ? beat[64*lane+:64] : 64'd0;
      word_valid <= zeros != 0 || length == 0 || here != 0;
      if (zeros != 0) zeros <= zeros - 1;
    end
    if (word_used) lane <= lane + 1;
    if (beat_used) length <= length - 1;

    if (made) begin
      symbols <= symbols - 1;
      index <= index + 1;
      digit <= symbol[16:0];
      digit_row <= row;
      digit_pass <= pass;
      row <= row == RW'(ROWS - 1) ? RW'(0) : row + 1;
      if (row == RW'(ROWS - 1)) pass <= pass + 1;
    end
    digit_valid <= made && operand == B;

    if (state == START) begin
      word_valid <= 0;
      lane <= 0;
      zeros <= operand == B ? shift[15:6] : 10'd0;
      length <= operand == A ? a_length : operand == M ? m_length : operand == C ? c_length : b_length;
      symbols <= operand == B ? SW'(passes) * SW'(ROWS) : SW'(words);
      index <= 0;
      row <= 0;
      pass <= 0;
    end

    if (begin_valid) digit_number <= place;
    if (number_done && !fill) bank_0 <= {digit_number, words, passes, with_c, with_m, high};
    if (number_done && fill) bank_1 <= {digit_number, words, passes, with_c, with_m, high};

    if (reset) begin
      wants <= 0;
      owed <= 0;
      here <= 0;
      beat_in <= 0;
      beat_out <= 0;
      state <= IDLE;
      used <= 0;
      full <= 0;
      fill <= 0;
      next <= 0;
    end else begin
      if (accept) wants <= {1'b1, job_with_c, job_with_m, 1'b1};
      if (asked) wants[asks] <= 0;
      owed <= owed + (asked ? (BW + 1)'(asks_length) : 0) - (BW + 1)'(beat_used);
      here <= here + (BW + 1)'(beat_valid) - (BW + 1)'(beat_used);
      beat_in <= beat_in + BW'(beat_valid);
      beat_out <= beat_out + BW'(beat_used);

      case (state)
        IDLE: begin
          operand <= A;
          if (begin_valid) state <= START;
        end
        START: state <= CUT;
        CUT: if (done) state <= DROP;
        default: begin
          if (length == 0) begin
            state <= operand == B ? IDLE : START;
            operand <= operand == A && with_m ? M : (operand == A || operand == M) && with_c ? C : B;
          end
        end
      endcase

      if (begin_valid) used[place] <= 1;
      if (end_valid) used[end_number] <= 0;
      if (number_done) begin
        full[fill] <= 1;
        fill <= !fill;
      end
      if (new_taken) next <= !next;
      if (new_over) full[taken] <= 0;
    end
    if (new_taken) taken <= next;
  end

  // The banks.
  logic [25:0] a[0:1023];
  logic [25:0] m[0:1023];
  logic [26:0] t[0:1023];
  logic [25:0] a_read, m_read;
  logic [26:0] t_read;
  logic [8:0] new_index;
  logic new_with_c, new_with_m, reads_c, reads_m;
  always_ff @(posedge clk) begin
    if (made && operand == A) a[{fill, index}] <= symbol[25:0];
    if (made && operand == M) m[{fill, index}] <= symbol[25:0];
    if (made && operand == C) t[{fill, index}] <= {symbols == 1 && symbol[26], symbol[25:0]};
    a_read <= a[{taken, new_index}];
    m_read <= m[{taken, new_index}];
    t_read <= t[{taken, new_index}];
    if (new_taken) begin
      new_index <= 0;
      reads_c <= new_with_c;
      reads_m <= new_with_m;
    end else if (new_read) begin
      new_index <= new_index + 1;
    end
  end
  // The last word is still to come out when the next number is taken.
  logic shows_c, shows_m;
  always_ff @(posedge clk) begin
    shows_c <= reads_c;
    shows_m <= reads_m;
  end

  assign new_valid = full[next];
  assign {new_number, new_words, new_passes, new_with_c, new_with_m, new_high}
      = next ? bank_1 : bank_0;
  assign new_a = a_read;
  assign new_m = shows_m ? m_read : 26'd0;
  assign new_t = shows_c ? t_read : 27'd0;
endmodule
