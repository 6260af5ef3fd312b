// The ring of rows, and the way back from the last row to the first.
//
//                     ┌───────────────── waiting words ◄─────────────────┐
//     new numbers ──► row 0 ─► row 1 ─► … ─► row ROWS-1 ─► passes left? ─┴─► results
//
// A number goes round `passes` times. Each row has a memory with its own digit of b for every pass of every
// number in flight, reads it when the number is about to come, and keeps the quotient digit that it finds in
// another one.
//
// The words of a number are a block: at row 0, and so everywhere, they follow each other without a gap. When
// a block has ended, the oldest one that waits begins, even while its end is still on its way here: it comes
// as fast as it is read. A new number begins only when none waits, so that the numbers in the ring finish.
//
// Room: a block that comes back waits 5 · ROWS + 4 cycles after it was begun. So when a new number begins, and
// none waits, all that will come back began in the last 5 · ROWS + 3 cycles, and has ended: they are no more
// words than that. The new number adds 320: DEPTH must be at least 5 · ROWS + 324.
//
// A row has latency 5 and the way back 4 cycles: 5 · ROWS + 4 words in flight keep all multipliers busy.
module ring #(
    parameter ROWS = 8,
    parameter NUMBERS = 16,
    parameter DEPTH = 512  // words that have room to wait, a power of two
) (
    input  logic                       clk,
    input  logic                       reset,
    // A new number. Its next word is asked for by `new_read`, and is there a cycle later; `new_over` is with
    // the last.
    input  logic                       new_valid,
    output logic                       new_taken,
    input  logic [$clog2(NUMBERS)-1:0] new_number,
    input  logic [8:0]                 new_words,
    input  logic [6:0]                 new_passes,
    input  logic                       new_high,
    output logic                       new_read,
    output logic                       new_over,
    input  logic [26:0]                new_t,
    input  logic [25:0]                new_a,
    input  logic [25:0]                new_m,
    // A digit of b, there before its number begins.
    input  logic                       digit_valid,
    input  logic [$clog2(ROWS)-1:0]    digit_row,
    input  logic [$clog2(NUMBERS)-1:0] digit_number,
    input  logic [5:0]                 digit_pass,
    input  logic [16:0]                digit,
    // The end of the ring: words of t on the last pass.
    output logic                       word_valid,
    output logic                       result_valid,  // with the first of them, or where it would be
    output logic [$clog2(NUMBERS)-1:0] out_number,
    output logic [26:0]                out_t,
    // The quotient digits of a pass of a number whose result is there, a cycle after they are asked for.
    input  logic                       quotient_read,
    input  logic [$clog2(NUMBERS)-1:0] quotient_number,
    input  logic [5:0]                 quotient_pass,
    output logic [17*ROWS-1:0]         quotients,
    output logic [$clog2(ROWS+1)-1:0]  busy
);
  localparam NW = $clog2(NUMBERS);
  localparam DW = $clog2(DEPTH);
  localparam BW = $clog2(ROWS + 1);
  localparam RW = $clog2(ROWS);
  // What goes with a number: high, words, passes, pass, number.
  localparam HEADER = 1 + 9 + 7 + 6 + NW;

  // Which block is at row 0 is decided while the one before it ends; two cycles later its first word is
  // there.
  logic back_valid, back_taken;
  logic [HEADER-1:0] back_header, header, end_header;
  logic on, first, is_new;
  logic [8:0] left;

  wire last = left == 1;
  wire free = !on || last;
  wire [8:0] back_words = back_header[NW+13+:9];
  assign back_taken = free && back_valid;
  assign new_taken  = free && !back_valid && new_valid;
  assign new_read   = on && is_new;
  assign new_over   = new_read && last;

  always_ff @(posedge clk) begin
    if (reset) on <= 0;
    else if (free) on <= back_taken || new_taken;
    first <= free;
    left  <= left - 1;
    if (free) begin
      is_new <= !back_valid;
      left   <= back_valid ? back_words : new_words;
      header <= back_valid ? back_header : {new_high, new_words, new_passes, 6'd0, new_number};
    end
  end

  // The words that wait.
  logic [78:0] waiting[0:DEPTH-1];
  logic [78:0] waited;
  logic [DW-1:0] waiting_in, waiting_out;
  logic wait_valid;
  logic [78:0] end_words;
  always_ff @(posedge clk) begin
    if (wait_valid) waiting[waiting_in] <= end_words;
    waited <= waiting[waiting_out];
    if (reset) begin
      waiting_in  <= 0;
      waiting_out <= 0;
    end else begin
      waiting_in  <= waiting_in + DW'(wait_valid);
      waiting_out <= waiting_out + DW'(on && !is_new);
    end
  end

  // A cycle for the memories to answer, and one to choose.
  logic on_1, first_1, last_1, is_new_1;
  logic valid_2, first_2, last_2;
  logic [78:0] words_2;
  logic [HEADER-1:0] header_2;
  always_ff @(posedge clk) begin
    on_1     <= on && !reset;
    first_1  <= on && first && !reset;
    last_1   <= on && last && !reset;
    is_new_1 <= is_new;
    valid_2  <= on_1 && !reset;
    first_2  <= first_1 && !reset;
    last_2   <= last_1 && !reset;
    words_2  <= is_new_1 ? {new_t, new_a, new_m} : waited;
  end
  delay #(.WIDTH(HEADER), .CYCLES(2)) until_here (.clk(clk), .in(header), .out(header_2));

  logic [ROWS-1:0] working;
  for (genvar r = 0; r < ROWS; r++) begin : rows
    // What comes to this row, and leaves it for the next one; `soon` is the pass and number of what comes in two
    // cycles.
    logic valid, begins, ends, next_valid, next_begins, next_ends;
    logic [26:0] t, next_t;
    logic [25:0] a, m, next_a, next_m;
    logic [HEADER-1:0] here, next_soon, next_here;
    logic [NW+5:0] soon;
    if (r == 0) begin : from_choice
      assign {valid, begins, ends} = {valid_2, first_2, last_2};
      assign {t, a, m} = words_2;
      assign {soon, here} = {header[NW+5:0], header_2};
    end else begin : from_row
      assign {valid, begins, ends} = {rows[r-1].next_valid, rows[r-1].next_begins, rows[r-1].next_ends};
      assign {t, a, m} = {rows[r-1].next_t, rows[r-1].next_a, rows[r-1].next_m};
      assign {soon, here} = {rows[r-1].next_soon[NW+5:0], rows[r-1].next_here};
    end
    delay #(.WIDTH(HEADER), .CYCLES(3)) until_soon (.clk(clk), .in(here), .out(next_soon));
    delay #(.WIDTH(HEADER), .CYCLES(2)) until_next (.clk(clk), .in(next_soon), .out(next_here));
    assign working[r] = valid;

    logic [16:0] digits[0:64*NUMBERS-1];
    logic [16:0] found[0:64*NUMBERS-1];
    logic [16:0] digit_1, digit_2, quotient;
    always_ff @(posedge clk) begin
      if (digit_valid && digit_row == RW'(r)) digits[{digit_pass, digit_number}] <= digit;
      digit_1 <= digits[soon];
      digit_2 <= digit_1;
      if (begins) found[here[NW+5:0]] <= t[16:0];
      if (quotient_read) quotient <= found[{quotient_pass, quotient_number}];
    end
    assign quotients[17*r+:17] = quotient;

    row row_r (
        .clk(clk),
        .reset(reset),
        .in_valid(valid),
        .in_first(begins),
        .in_last(ends),
        .in_t(t),
        .in_a(a),
        .in_m(m),
        .in_digit(digit_2),
        .out_valid(next_valid),
        .out_first(next_begins),
        .out_last(next_ends),
        .out_t(next_t),
        .out_a(next_a),
        .out_m(next_m)
    );
  end

  wire end_valid = rows[ROWS-1].next_valid;
  wire end_first = rows[ROWS-1].next_begins;
  wire [26:0] end_t = rows[ROWS-1].next_t;
  assign end_words = {end_t, rows[ROWS-1].next_a, rows[ROWS-1].next_m};
  assign end_header = rows[ROWS-1].next_here;
  wire [5:0] end_pass = end_header[NW+:6];
  wire [5:0] next_pass = end_pass + 1;
  wire end_final = {1'b0, end_pass} + 7'd1 == end_header[NW+6+:7];
  wire end_high = end_header[HEADER-1];
  assign wait_valid = end_valid && !end_final;

  logic [NW:0] back_count;
  wire unused = &{back_count, rows[ROWS-1].next_ends, rows[ROWS-1].next_soon};
  queue #(.WIDTH(HEADER), .DEPTH(NUMBERS)) back (
      .clk(clk),
      .reset(reset),
      .put(end_first && !end_final),
      .in({end_header[HEADER-1:NW+6], next_pass, end_header[NW-1:0]}),
      .valid(back_valid),
      .take(back_taken),
      .out(back_header),
      .count(back_count)
  );

  assign word_valid = end_valid && end_final && end_high;
  assign result_valid = end_first && end_final;
  assign out_number = end_header[NW-1:0];
  assign out_t = end_t;

  // A row's multipliers have their factors a cycle after its input.
  logic [BW-1:0] count;
  always_comb begin
    count = 0;
    for (int r = 0; r < ROWS; r++) count = count + BW'(working[r]);
  end
  always_ff @(posedge clk) busy <= reset ? BW'(0) : count;
endmodule
