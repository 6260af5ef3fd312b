// The lane unit, a beat a cycle: `select`, `add_beats` and `wipe`.
//
// A table is read whole, entry by entry, and what is not chosen is masked: neither time nor addresses tell the digit.
// Of lanes there are ten of 51 bits to a beat, residues below primes of 50 bits.
//
// Transforms of such residues are not built; `ntt`, `intt` and `poly_mul` stay with the CPU. A residue is two words of
// 26 bits by three digits of 17: a modular product is three rows of an array, six multipliers, for two cycles, and a
// butterfly in every cycle takes 12 DSP48E2. N = 8192 is 13 · 4096 = 53,248 butterflies: 3,328 cycles (11.1 µs at 300
// MHz) of 16 units with 192 DSP48E2, beside two banks of N · 50 bits, 24 RAMB36. A core of the CPU takes 8.3 µs. Rows
// would do as they are; the exchange of words between units is missing.
module lanes #(
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

  // `DIGIT`: the beat of b with the digit is asked for. `TABLE`: it comes, and then the entries, all of which are asked
  // for meanwhile. `PRIMES`, `LEFT`, `RIGHT`: the beats of c come, and up to 32 beats of a and of b.
  localparam IDLE = 0, DIGIT = 1, TABLE = 2, PRIMES = 3, LEFT = 4, RIGHT = 5, WRITE = 6;
  logic [2:0] state;
  // verilator lint_off UNUSEDSIGNAL
  logic [511:0] held;  // of which some fields are for other units
  // verilator lint_on UNUSEDSIGNAL
  logic asked, knows_digit;
  logic [7:0] beat;

  wire [7:0] operation = held[FIELD_OPERATION_LOW+:8];
  wire [7:0] a_length = held[FIELD_A_LENGTH_LOW+:8];
  wire [7:0] c_length = held[FIELD_C_LENGTH_LOW+:8];
  wire [15:0] shift = held[FIELD_SHIFT_LOW+:16];
  wire [2:0] width = held[FIELD_WIDTH_LOW+:3];

  logic [511:0] buffer[0:31];
  logic [511:0] primes[0:31];

  logic [3:0] digit, entry, asked_entry;
  wire [3:0] last_entry = 4'((5'd1 << width) - 5'd1);

  // Beats of an item that are left, of these the ones at hand, and the prime of the next.
  logic [7:0] left;
  wire [7:0] part = left < 32 ? left : 32;
  logic [7:0] prime;

  logic [511:0] sums;
  for (genvar i = 0; i < 10; i++) begin : lane
    lane_adder adder (
        .a(buffer[beat[4:0]][51*i+:51]),
        .b(beat_data[51*i+:51]),
        .prime(primes[prime[4:0]][51*i+:51]),
        .sum(sums[51*i+:51])
    );
  end
  assign sums[511:510] = 0;

  logic [31:0] a_at, b_at;
  assign job_ready = state == IDLE;
  assign read_valid = state != IDLE && state != WRITE && !asked;
  always_comb begin
    read_length = part;
    case (state)
      DIGIT: begin
        read_at = b_at + {25'd0, shift[15:9]};
        read_length = 1;
      end
      TABLE: begin
        read_at = a_at;
        read_length = a_length;
      end
      PRIMES: begin
        read_at = held[FIELD_C_AT_LOW+:32];
        read_length = c_length;
      end
      LEFT: read_at = a_at;
      default: read_at = b_at;
    endcase
  end

  assign write_valid = state == WRITE && beat != 0;
  logic [7:0] stored;  // beats of the buffer that hold something
  assign write_last = beat == part && left <= 32;

  always_ff @(posedge clk) if (job_valid && job_ready) held <= job;
  always_ff @(posedge clk) begin
    if (beat_valid) begin
      case (state)
        TABLE:
        if (knows_digit) buffer[beat[4:0]] <= (entry == 0 ? 512'd0 : buffer[beat[4:0]]) | (entry == digit ? beat_data : 512'd0);
        PRIMES: primes[beat[4:0]] <= beat_data;
        LEFT: buffer[beat[4:0]] <= beat_data;
        RIGHT: buffer[beat[4:0]] <= sums;
        default: ;
      endcase
    end
    if (reset) begin
      state <= IDLE;
    end else begin
      if (read_valid && read_ready) asked <= state != TABLE || asked_entry == last_entry;
      case (state)
        IDLE:
        if (job_valid) begin
          write_tag <= job_tag;
          write_at <= job[FIELD_D_AT_LOW+:32];
          a_at <= job[FIELD_A_AT_LOW+:32];
          b_at <= job[FIELD_B_AT_LOW+:32];
          left <= job[FIELD_D_LENGTH_LOW+:8];
          asked <= 0;
          beat <= 0;
          entry <= 0;
          asked_entry <= 0;
          knows_digit <= 0;
          prime <= 0;
          stored <= 0;
          case (job[FIELD_OPERATION_LOW+:8])
            OPERATION_SELECT: state <= DIGIT;
            OPERATION_ADD_BEATS: state <= PRIMES;
            default: state <= WRITE;
          endcase
        end
        DIGIT:
        if (read_ready) begin
          asked <= 0;
          state <= TABLE;
        end
        TABLE: begin
          if (read_valid && read_ready) begin
            a_at <= a_at + {24'd0, a_length};
            asked_entry <= asked_entry + 1;
          end
          if (beat_valid && !knows_digit) begin
            digit <= 4'(beat_data >> shift[8:0]) & last_entry;
            knows_digit <= 1;
          end else if (beat_valid) begin
            beat <= beat + 1;
            if (beat + 1 == a_length) begin
              beat <= 0;
              entry <= entry + 1;
              if (entry == last_entry) begin
                state <= WRITE;
                stored <= a_length;
              end
            end
          end
        end
        PRIMES:
        if (beat_valid) begin
          beat <= beat + 1;
          if (beat + 1 == c_length) begin
            beat <= 0;
            asked <= 0;
            state <= LEFT;
          end
        end
        LEFT, RIGHT:
        if (beat_valid) begin
          beat <= beat + 1;
          if (state == RIGHT) prime <= prime + 1 == c_length ? 0 : prime + 1;
          if (beat + 1 == part) begin
            beat <= 0;
            asked <= 0;
            stored <= part;
            state <= state == LEFT ? RIGHT : WRITE;
          end
        end
        default:
        if (beat == 0 || write_ready) begin
          // `beat` is that which is offered, from 1.
          write_data <= beat < stored ? buffer[beat[4:0]] : 0;
          if (beat != 0) write_at <= write_at + 1;
          beat <= beat + 1;
          if (beat == part) begin
            left <= left - part;
            a_at <= a_at + {24'd0, part};
            b_at <= b_at + {24'd0, part};
            beat <= 0;
            state <= left <= 32 ? IDLE : operation == OPERATION_ADD_BEATS ? LEFT : WRITE;
          end
        end
      endcase
    end
  end
endmodule
