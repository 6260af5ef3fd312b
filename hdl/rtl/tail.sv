// The word-serial tail: `reduce` and `linear`, on words of 64 bits, one a cycle.
//
// Both are y = a ∓ h · x: linear with x = b and h = c (below 2^24) or 1; reduce with x = m and an estimate h of the
// quotient, and y − m beside y. With e = `shift`, which is `max(bits of m − 22, 0)`, and a below 2^20 · m,
//
//     h = ⌊⌊a / 2^e⌋ / (⌊m / 2^e⌋ + δ)⌋,  δ = 1 if e > 0, else 0.
//
// h is not above a / m, for `⌊a/2^e⌋ ≤ a/2^e` and `⌊m/2^e⌋ + δ ≥ m/2^e`; with e = 0 it is the quotient. Else the divisor
// is at least 2^21 and too large by less than 1 part in 2^21, so that a / m − h is below 2^20 · 2^-21 + 2^-21 + 1 < 2:
// y is in [0, 2m), and y or y − m the residue, by the last borrow. `⌊a/2^e⌋` has 42 bits at most, h has 21.
//
// Every item takes the same time, whatever the numbers. Of n words: the loads, then n + 47 cycles to reduce or n + 3 of
// `linear`, then the writes.
module tail #(
    parameter TAG = 3
) (
    input  logic           clk,
    input  logic           reset,
    input  logic           job_valid,
    output logic           job_ready,
    input  logic [511:0]   job,
    input  logic [TAG-1:0] job_tag,
    output logic           read_valid,
    input  logic           read_ready,
    output logic [31:0]    read_at,
    output logic [7:0]     read_length,
    input  logic           beat_valid,
    input  logic [511:0]   beat_data,
    output logic           write_valid,
    input  logic           write_ready,
    output logic [31:0]    write_at,
    output logic [511:0]   write_data,
    output logic           write_last,
    output logic [TAG-1:0] write_tag
);
  `include "registers.svh"

  localparam IDLE = 0, LOAD = 1, WINDOW = 2, DIVIDE = 3, WORDS = 4, WRITE = 5;
  logic [2:0] state;
  logic [511:0] held;
  logic [1:0] asked, loaded;  // of a, x and the beat of h
  logic [7:0] beat;  // of what is loaded or written

  wire is_reduce = held[FIELD_OPERATION_LOW+:8] == OPERATION_REDUCE;
  wire with_c = held[FIELD_FLAGS_LOW+FLAG_WITH_C];
  wire minus = is_reduce || held[FIELD_FLAGS_LOW+FLAG_MINUS];
  wire quotient = is_reduce && held[FIELD_FLAGS_LOW+FLAG_HIGH];
  wire [7:0] a_length = held[FIELD_A_LENGTH_LOW+:8];
  wire [7:0] x_length = is_reduce ? held[FIELD_M_LENGTH_LOW+:8] : held[FIELD_B_LENGTH_LOW+:8];
  wire [7:0] d_length = held[FIELD_D_LENGTH_LOW+:8];
  wire [15:0] shift = held[FIELD_SHIFT_LOW+:16];
  // Beats that words are computed of: all of a for a residue, what is written otherwise.
  wire [7:0] length = is_reduce ? a_length : d_length;

  logic [511:0] a[0:31];
  logic [511:0] x[0:31];
  logic [511:0] y[0:31];
  logic [511:0] z[0:31];

  // Words of a and x, zero above their beats.
  logic [8:0] index;
  wire [5:0] place = index[8:3];
  logic [511:0] a_beat, x_beat;
  logic [2:0] lane;
  wire [63:0] a_word = a_beat[64*lane+:64];
  wire [63:0] x_word = x_beat[64*lane+:64];
  always_ff @(posedge clk) begin
    if (state == WINDOW || state == WORDS) begin
      a_beat <= {2'd0, place} < a_length ? a[place[4:0]] : 0;
      x_beat <= {2'd0, place} < x_length ? x[place[4:0]] : 0;
      lane <= index[2:0];
    end
  end

  // The windows of a and m at bit `shift`, of two words each.
  logic [63:0] a_low, x_low;
  logic [2:0] step;
  wire [41:0] a_window = 42'({a_word, a_low} >> shift[5:0]);
  wire [21:0] x_window = 22'({x_word, x_low} >> shift[5:0]);

  // Restoring division, a bit a cycle.
  logic [41:0] top;
  logic [22:0] divisor;
  logic [22:0] rest;
  logic [23:0] h;
  logic [5:0] bits;
  wire [23:0] trial = {rest, top[41]};
  wire fits = trial >= {1'b0, divisor};

  // y and y − m, three cycles after the index: read, multiply, add.
  logic [1:0] valid;
  logic [87:0] product;
  logic [63:0] a_late, x_late;
  logic signed [25:0] carry;
  logic signed [1:0] borrow;
  logic signed [90:0] sum;
  logic signed [66:0] less;
  always_comb begin
    sum = 0;
    less = 0;
    if (valid[1]) begin
      sum = $signed({27'd0, a_late}) + (minus ? -$signed({3'd0, product}) : $signed({3'd0, product}))
          + $signed({{65{carry[25]}}, carry});
      less = $signed({3'd0, sum[63:0]}) - (is_reduce ? $signed({3'd0, x_late}) : 67'sd0)
          + $signed({{65{borrow[1]}}, borrow});
    end
  end
  logic [8:0] out;
  logic [447:0] y_beat, z_beat;
  wire last_word = out == {length[5:0], 3'd0} - 1;

  // The residue is y where y − m is below zero.
  wire below = borrow[1];

  assign job_ready = state == IDLE;
  wire [1:0] loads = !is_reduce && with_c ? 3 : 2;
  assign read_valid = state == LOAD && asked != loads;
  always_comb begin
    case (asked)
      0: begin
        read_at = held[FIELD_A_AT_LOW+:32];
        read_length = a_length;
      end
      1: begin
        read_at = is_reduce ? held[FIELD_M_AT_LOW+:32] : held[FIELD_B_AT_LOW+:32];
        read_length = x_length;
      end
      default: begin
        read_at = held[FIELD_C_AT_LOW+:32];
        read_length = 1;
      end
    endcase
  end

  assign write_valid = state == WRITE && beat != 0;
  assign write_last = beat == d_length;
  logic [511:0] write_beat;
  assign write_data = write_beat;

  function automatic logic [511:0] number(input logic [23:0] value);
    number = {488'd0, value};
  endfunction

  always_ff @(posedge clk) if (job_valid && job_ready) held <= job;
  always_ff @(posedge clk) begin
    if (loaded == 0 && beat_valid) a[beat[4:0]] <= beat_data;
    if (loaded == 1 && beat_valid) x[beat[4:0]] <= beat_data;
    if (valid[1] && out[2:0] == 7) begin
      y[out[7:3]] <= {sum[63:0], y_beat};
      z[out[7:3]] <= {less[63:0], z_beat};
    end
    if (state == WORDS) begin
      product <= h * x_word;
      a_late <= a_word;
      x_late <= x_word;
    end
    if (reset) begin
      state <= IDLE;
      valid <= 0;
    end else begin
      valid <= {valid[0], 1'b0};
      case (state)
        IDLE:
        if (job_valid) begin
          write_tag <= job_tag;
          write_at <= job[FIELD_D_AT_LOW+:32];
          asked <= 0;
          loaded <= 0;
          beat <= 0;
          state <= LOAD;
        end
        LOAD: begin
          if (read_valid && read_ready) asked <= asked + 1;
          if (beat_valid) begin
            beat <= beat + 1;
            if (beat + 1 == (loaded == 0 ? a_length : loaded == 1 ? x_length : 1)) begin
              beat <= 0;
              loaded <= loaded + 1;
              h <= loaded == 2 ? beat_data[23:0] : 1;
              index <= is_reduce ? shift[14:6] : 0;
              step <= 0;
              if (loaded + 1 == loads) state <= is_reduce ? WINDOW : WORDS;
            end
          end
        end
        WINDOW: begin
          // The word after, then both are there.
          if (step == 0) index <= index + 1;
          if (step == 1) begin
            a_low <= a_word;
            x_low <= x_word;
          end
          if (step == 2) begin
            top <= a_window;
            divisor <= {1'b0, x_window} + {22'd0, shift != 0};
            rest <= 0;
            bits <= 42;
            state <= DIVIDE;
          end
          step <= step + 1;
        end
        DIVIDE: begin
          rest <= 23'(fits ? trial - {1'b0, divisor} : trial);
          h <= {h[22:0], fits};
          top <= top << 1;
          bits <= bits - 1;
          if (bits == 1) begin
            index <= 0;
            state <= WORDS;
          end
        end
        WORDS: begin
          if (index != {length[5:0], 3'd0}) begin
            index <= index + 1;
            valid[0] <= 1;
          end
          if (valid[1]) begin
            out <= out + 1;
            carry <= 26'(sum >>> 64);
            borrow <= 2'(less >>> 64);
            y_beat <= {sum[63:0], y_beat[447:64]};
            z_beat <= {less[63:0], z_beat[447:64]};
            if (last_word) begin
              state <= WRITE;
              beat <= 0;
            end
          end
        end
        default: begin
          // `beat` is that which `write_beat` holds, from 1; what is above the words is zero.
          if (beat == 0 || write_ready) begin
            if (beat == d_length) state <= IDLE;
            else if (quotient) write_beat <= beat == 0 ? number(below ? h : h + 1) : 0;
            else write_beat <= beat < length ? (!is_reduce || below ? y[beat[4:0]] : z[beat[4:0]]) : 0;
            if (beat != 0) write_at <= write_at + 1;
            beat <= beat + 1;
          end
        end
      endcase
      if (state != WORDS) begin
        out <= 0;
        if (state != WRITE) begin
          carry <= 0;
          borrow <= 0;
        end
      end
    end
  end
endmodule
