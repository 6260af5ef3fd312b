// Results: quotient digits and words of t become beats in card memory.
//
// T has words of 27 bits whose highest bit weighs as much as the lowest of the next; here the carries travel,
// a word a cycle. A word that is not the last is at most 2^26 + 2^18, so the carry is 0 or 1; what the last
// word has above 26 bits follows as a word of its own. Q has 17 bits a digit, from the second digit on, for
// the first one is 0.
//
//     high: T      low: Q      both: Q, zeros up to the next beat if there is a modulus, T
//
// and then zeros up to `d_length` beats.
//
// Words of t lie here from the end of the ring on, WORDS of them: the ring begins a number only if `room`
// says that its words will have room. Quotient digits lie in the rows. A number of w words, n
// digits and d beats takes w + n + 8d cycles at most, and 10 more; it is one after the other.
module result #(
    parameter ROWS = 8,
    parameter NUMBERS = 16,
    parameter TAG = 4,
    parameter WORDS = 1024  // a power of two
) (
    input  logic                       clk,
    input  logic                       reset,
    // What to do with a number, when it gets its place; that its place is free again.
    input  logic                       begin_valid,
    input  logic [$clog2(NUMBERS)-1:0] begin_number,
    input  logic [TAG+56:0]            begin_result,
    output logic                       end_valid,
    output logic [$clog2(NUMBERS)-1:0] end_number,
    // Whether a number may begin in the ring, and that it does.
    input  logic                       new_taken,
    input  logic [8:0]                 new_words,
    input  logic                       new_high,
    output logic                       room,
    // From the ring.
    input  logic                       word_valid,
    input  logic                       result_valid,
    input  logic [$clog2(NUMBERS)-1:0] in_number,
    input  logic [26:0]                in_t,
    // The quotient digits of a pass, a cycle after they are asked for.
    output logic                       quotient_read,
    output logic [$clog2(NUMBERS)-1:0] quotient_number,
    output logic [5:0]                 quotient_pass,
    input  logic [17*ROWS-1:0]         quotients,
    // To memory.
    output logic                       write_valid,
    input  logic                       write_ready,
    output logic [31:0]                write_at,
    output logic [511:0]               write_data,
    output logic                       write_last,
    output logic [TAG-1:0]             write_tag
);
  localparam NW = $clog2(NUMBERS);
  localparam WW = $clog2(WORDS);
  localparam RW = $clog2(ROWS);

  // Words that begun numbers have here or will have.
  logic [WW:0] kept;
  logic word_used;
  assign room = !new_high || kept + {{(WW - 8) {1'b0}}, new_words} <= (WW + 1)'(WORDS);
  always_ff @(posedge clk) begin
    if (reset) kept <= 0;
    else kept <= kept + (new_taken && new_high ? {{(WW - 8) {1'b0}}, new_words} : 0) - (WW + 1)'(word_used);
  end

  logic ready_valid, ready_taken;
  logic [NW-1:0] ready_number;
  logic [NW:0] ready_count;
  wire unused = &{ready_count};
  queue #(.WIDTH(NW), .DEPTH(NUMBERS)) ready_numbers (
      .clk(clk), .reset(reset), .put(result_valid), .in(in_number), .valid(ready_valid), .take(ready_taken),
      .out(ready_number), .count(ready_count)
  );

  logic [TAG+56:0] results[0:NUMBERS-1];
  logic [TAG-1:0] tag;
  logic [31:0] at;
  logic [5:0] length;
  logic [8:0] words;
  logic [6:0] passes;
  logic with_m, high, low;

  // Symbols go to the packer by a register; all here moves when that is free.
  localparam WORD = 0, DIGIT = 1, ALIGN = 2, END = 3;
  localparam IDLE = 0, FIRST = 1, DIGITS = 2, BETWEEN = 3, READ = 4, TOP = 5, LAST = 6, WAIT = 7;
  logic [2:0] state;
  logic symbol_valid, packer_ready;
  logic [1:0] kind;
  logic [25:0] symbol;
  wire go = !symbol_valid || packer_ready;

  logic [17*ROWS-1:0] group;  // of digits that are left of a pass
  logic [NW-1:0] number;
  logic [5:0] pass;
  logic [6:0] groups_left;
  logic [RW-1:0] digit;
  logic skip;  // the first digit
  logic pause;

  logic [26:0] ts[0:WORDS-1];
  logic [26:0] t;
  logic [WW-1:0] t_in, t_out;
  logic [8:0] left;
  logic t_valid, t_last;
  logic [1:0] carry;
  wire [27:0] sum = {1'b0, t} + {26'd0, carry};
  assign word_used = state == READ && go && left != 0;

  logic packed_valid, packed_ready;
  logic [63:0] packed_word;
  assign ready_taken = state == IDLE && ready_valid;
  assign end_valid = state == WAIT && !symbol_valid && !packed_valid;
  assign end_number = number;
  assign quotient_read = state == FIRST || state == DIGITS;
  assign quotient_number = number;
  assign quotient_pass = pass;

  always_ff @(posedge clk) begin
    if (begin_valid) results[begin_number] <= begin_result;
    if (word_valid) ts[t_in] <= in_t;
    if (go) t <= ts[t_out];

    if (reset) begin
      state <= IDLE;
      symbol_valid <= 0;
      t_in <= 0;
      t_out <= 0;
    end else begin
      if (word_valid) t_in <= t_in + 1;
      if (word_used) t_out <= t_out + 1;
      if (go) symbol_valid <= 0;
      case (state)
        IDLE: begin
          number <= ready_number;
          {tag, at, length, words, passes, with_m, high, low} <= results[ready_number];
          pass <= 0;
          pause <= 1;
          if (ready_valid) state <= FIRST;
        end
        FIRST: begin
          // The first group is there a cycle after its number.
          pause <= 0;
          group <= quotients;
          groups_left <= passes;
          digit <= 0;
          skip <= 1;
          left <= words;
          t_valid <= 0;
          carry <= 0;
          if (!low) state <= READ;
          else if (!pause) begin
            pass <= 1;
            state <= DIGITS;
          end
        end
        DIGITS:
        if (go) begin
          symbol_valid <= !skip;
          skip <= 0;
          kind <= DIGIT;
          symbol <= {9'd0, group[16:0]};
          group <= {17'd0, group[17*ROWS-1:17]};
          digit <= digit + 1;
          if (digit == RW'(ROWS - 1)) begin
            digit <= 0;
            group <= quotients;
            pass <= pass + 1;
            groups_left <= groups_left - 1;
            if (groups_left == 1) state <= !high ? LAST : with_m ? BETWEEN : READ;
          end
        end
        BETWEEN:
        if (go) begin
          symbol_valid <= 1;
          kind <= ALIGN;
          state <= READ;
        end
        READ:
        if (go) begin
          t_valid <= left != 0;
          t_last <= left == 1;
          if (left != 0) left <= left - 1;
          if (t_valid) begin
            symbol_valid <= 1;
            kind <= WORD;
            symbol <= sum[25:0];
            carry <= sum[27:26];
            if (t_last) state <= TOP;
          end
        end
        TOP:
        if (go) begin
          symbol_valid <= 1;
          symbol <= {24'd0, carry};
          state <= LAST;
        end
        LAST:
        if (go) begin
          symbol_valid <= 1;
          kind <= END;
          state <= WAIT;
        end
        default: if (end_valid) state <= IDLE;
      endcase
    end
  end

  packer packer (
      .clk(clk),
      .reset(reset),
      .limit(length),
      .valid(symbol_valid),
      .ready(packer_ready),
      .kind(kind),
      .symbol(symbol),
      .word_valid(packed_valid),
      .word_ready(packed_ready),
      .word(packed_word)
  );

  // Eight words are a beat.
  logic [447:0] beat;
  logic [2:0] lane;
  logic [5:0] index;
  wire full = lane == 7;
  assign packed_ready = !full || !write_valid || write_ready;
  always_ff @(posedge clk) begin
    if (packed_valid && packed_ready) beat <= {packed_word, beat[447:64]};
    if (packed_valid && packed_ready && full) begin
      write_data <= {packed_word, beat};
      write_at <= at + {26'd0, index};
      write_last <= index + 1 == length;
      write_tag <= tag;
    end
    if (reset) begin
      write_valid <= 0;
      lane <= 0;
      index <= 0;
    end else begin
      if (write_ready) write_valid <= 0;
      if (packed_valid && packed_ready) begin
        lane <= lane + 1;
        if (full) write_valid <= 1;
        if (full) index <= index + 1 == length ? 0 : index + 1;
      end
    end
  end
endmodule
