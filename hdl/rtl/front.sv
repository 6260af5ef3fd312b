// Reads descriptors from the ring, checks them, and finds what memory they touch.
//
// A descriptor that cannot be done goes on with the status that says why, and touches nothing. It takes some 15 cycles
// and a read; those before it are at work meanwhile.
//
// Checks, in this order:
//
//     unknown   there is no such operation, or a bit without meaning is set. Fields that an operation does not have
//               are 0, but for place, stride and length of operands, which nobody looks at.
//     empty     no items
//     size      operands have 1 to 32 beats; a, b and d of add_beats as many as each other, up to 255, and d of wipe up
//               to 255; c of linear has one, m of reduce no more than a. words is 2 to 320, passes 1 to 64; multiply
//               writes T or Q. A shift is within a of reduce and b of select; a digit of 2 or 4 bits begins at a
//               multiple of that.
//     range     an operand is not in card memory
module front #(
    parameter MAX_WORDS  = 320,
    parameter MAX_PASSES = 64
) (
    input  logic         clk,
    input  logic         reset,
    input  logic [31:0]  memory_beats,
    input  logic [31:0]  ring,          // the ring's first beat
    input  logic [31:0]  entries,
    input  logic [31:0]  tail,
    output logic [31:0]  fetched,       // descriptors taken, modulo 2^32
    // Card memory.
    output logic         read_valid,
    input  logic         read_ready,
    output logic [31:0]  read_at,
    input  logic         beat_valid,
    input  logic [511:0] beat_data,
    // To the scoreboard: a descriptor, its unit, the ranges of a, b, c, m and d (empty where there is none).
    output logic         insert_valid,
    input  logic         insert_ready,
    output logic [511:0] descriptor,
    output logic [31:0]  descriptor_at,
    output logic [7:0]   fault,         // 0: it can be done
    output logic [1:0]   unit,
    output logic [159:0] low,
    output logic [159:0] high
);
  `include "registers.svh"

  localparam IDLE = 0, ASKED = 1, RANGES = 2, READY = 3;
  logic [1:0] state;
  logic [31:0] place;  // in the ring
  logic [2:0] operand;

  wire [7:0] operation = descriptor[FIELD_OPERATION_LOW+:8];
  wire [7:0] flags = descriptor[FIELD_FLAGS_LOW+:8];
  wire with_c = flags[FLAG_WITH_C];
  wire with_m = flags[FLAG_WITH_M];
  wire [31:0] count = descriptor[FIELD_COUNT_LOW+:32];
  wire [8:0] words = descriptor[FIELD_WORDS_LOW+:9];
  wire [7:0] passes = descriptor[FIELD_PASSES_LOW+:8];
  wire [15:0] shift = descriptor[FIELD_SHIFT_LOW+:16];
  wire [7:0] width = descriptor[FIELD_WIDTH_LOW+:8];
  wire [7:0] d_length = descriptor[FIELD_D_LENGTH_LOW+:8];

  // Which operands there are, a in bit 0 to d in bit 4; which flags and fields may be set.
  logic [4:0] used;
  logic [7:0] allowed;
  logic known, odd, sized;
  logic [1:0] its_unit;
  logic sets_words, sets_shift, sets_width;

  // A number of beats that units have room for.
  function automatic logic fits(input logic [7:0] length);
    fits = length >= 1 && length <= 32;
  endfunction

  logic [7:0] a_length, b_length, c_length, m_length;
  always_comb begin
    a_length = descriptor[FIELD_A_LENGTH_LOW+:8];
    b_length = descriptor[FIELD_B_LENGTH_LOW+:8];
    c_length = descriptor[FIELD_C_LENGTH_LOW+:8];
    m_length = descriptor[FIELD_M_LENGTH_LOW+:8];
    used = 0;
    allowed = 0;
    known = 1;
    odd = 0;
    sized = 1;
    its_unit = UNIT_LANES;
    sets_words = 0;
    sets_shift = 0;
    sets_width = 0;
    if (state == RANGES) case (operation)
      OPERATION_MULTIPLY: begin
        its_unit = UNIT_ARRAY;
        used = {1'b1, with_m, with_c, 2'b11};
        allowed = 8'd1 << FLAG_WITH_C | 8'd1 << FLAG_WITH_M | 8'd1 << FLAG_HIGH | 8'd1 << FLAG_LOW;
        sets_words = 1;
        sets_shift = 1;
        sized = words >= 2 && words <= MAX_WORDS && passes >= 1 && passes <= MAX_PASSES
            && (flags[FLAG_HIGH] || flags[FLAG_LOW])
            && fits(a_length) && fits(b_length) && fits(d_length)
            && (!with_c || fits(c_length)) && (!with_m || fits(m_length));
      end
      OPERATION_REDUCE: begin
        its_unit = UNIT_TAIL;
        used = 5'b11001;
        allowed = 8'd1 << FLAG_HIGH;
        sets_shift = 1;
        sized = fits(a_length) && fits(m_length) && fits(d_length) && m_length <= a_length
            && shift[15:9] < {1'b0, a_length[5:0]};
      end
      OPERATION_LINEAR: begin
        its_unit = UNIT_TAIL;
        used = {2'b10, with_c, 2'b11};
        allowed = 8'd1 << FLAG_WITH_C | 8'd1 << FLAG_MINUS;
        sized = fits(a_length) && fits(b_length) && fits(d_length) && (!with_c || c_length == 1);
      end
      OPERATION_SELECT: begin
        used = 5'b10011;
        sets_shift = 1;
        sets_width = 1;
        sized = fits(a_length) && fits(b_length) && fits(d_length) && shift[15:9] < {1'b0, b_length[5:0]}
            && (width == 0 || width == 1 || width == 2 && !shift[0] || width == 4 && shift[1:0] == 0);
      end
      OPERATION_ADD_BEATS: begin
        used = 5'b10111;
        sized = a_length != 0 && a_length == b_length && a_length == d_length && fits(c_length);
      end
      OPERATION_WIPE: begin
        used = 5'b10000;
        sized = d_length != 0;
      end
      default: known = 0;
    endcase
    // What has no meaning must be 0, but for the operands that an operation has not.
    if (state == RANGES) odd = (flags & ~allowed) != 0 || descriptor[31:16] != 0 || descriptor[319:304] != 0
      || descriptor[375:369] != 0 || descriptor[415:408] != 0 || descriptor[511:416] != 0
      || !sets_words && (words != 0 || passes != 0) || !sets_shift && shift != 0 || !sets_width && width != 0;
  end

  // The range of one operand a cycle: `at` to `at + (count − 1) · stride + length`.
  logic [31:0] at;
  logic [15:0] stride;
  logic [12:0] length;
  always_comb begin
    at = descriptor[FIELD_A_AT_LOW+32*operand+:32];
    case (operand)
      0: begin
        stride = descriptor[FIELD_A_STRIDE_LOW+:16];
        length = operation == OPERATION_SELECT ? {5'd0, a_length} << width[2:0] : {5'd0, a_length};
      end
      1: begin
        stride = descriptor[FIELD_B_STRIDE_LOW+:16];
        length = {5'd0, b_length};
      end
      2: begin
        stride = descriptor[FIELD_C_STRIDE_LOW+:16];
        length = {5'd0, c_length};
      end
      3: begin
        stride = descriptor[FIELD_M_STRIDE_LOW+:16];
        length = {5'd0, m_length};
      end
      default: begin
        stride = descriptor[FIELD_D_STRIDE_LOW+:16];
        length = {5'd0, d_length};
      end
    endcase
  end
  logic [47:0] steps;
  always_comb steps = ({16'd0, count} - 48'd1) * {32'd0, stride};
  wire [49:0] past = {18'd0, at} + {2'd0, steps} + {37'd0, length};

  assign read_valid = state == IDLE && fetched != tail;
  assign read_at = ring + place;
  assign insert_valid = state == READY;

  always_ff @(posedge clk) if (state == ASKED && beat_valid) descriptor <= beat_data;
  always_ff @(posedge clk) begin
    if (reset) begin
      state <= IDLE;
      fetched <= 0;
      place <= 0;
    end else begin
      case (state)
        IDLE:
        if (read_valid && read_ready) begin
          state <= ASKED;
          descriptor_at <= read_at;
        end
        ASKED:
        if (beat_valid) begin
          operand <= 0;
          fault <= 0;
          state <= RANGES;
        end
        RANGES: begin
          if (operand == 0) begin
            if (!known || odd) fault <= STATUS_UNKNOWN;
            else if (count == 0) fault <= STATUS_EMPTY;
            else if (!sized) fault <= STATUS_SIZE;
            unit <= its_unit;
          end
          low[32*operand+:32] <= used[operand] ? at : 0;
          high[32*operand+:32] <= used[operand] ? past[31:0] : 0;
          if (fault == 0 && used[operand] && count != 0 && past > {18'd0, memory_beats} && !(operand == 0 && (!known || odd || !sized)))
            fault <= STATUS_RANGE;
          operand <= operand + 1;
          if (operand == 4) state <= READY;
        end
        default:
        if (insert_ready) begin
          state <= IDLE;
          fetched <= fetched + 1;
          place <= place + 1 == entries ? 0 : place + 1;
        end
      endcase
    end
  end
endmodule
