// The ring of rows, and the way back from the last row to the first.
//
//                     ┌───────────────── waiting words ◄─────────────────┐
//     new numbers ──► row 0 ─► row 1 ─► … ─► row ROWS-1 ─► passes left? ─┴─► results
//
// A number goes round `passes` times. With its first word come the ROWS digits of b of that pass, its group;
// row r takes digit r when the number is there, and the quotient digits that the rows find leave as a group
// with the first word.
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
    input  logic                       new_low,
    output logic                       new_read,
    output logic                       new_over,
    input  logic [26:0]                new_t,
    input  logic [25:0]                new_a,
    input  logic [25:0]                new_m,
    // A group of digits of b, there before its number begins.
    input  logic                       group_valid,
    input  logic [$clog2(NUMBERS)-1:0] group_number,
    input  logic [5:0]                 group_pass,
    input  logic [17*ROWS-1:0]         group,
    // The end of the ring: quotient digits of every pass, and words of t on the last one.
    output logic                       quotient_valid,
    output logic                       word_valid,
    output logic                       result_valid,  // with the last pass's first word
    output logic [$clog2(NUMBERS)-1:0] out_number,
    output logic [5:0]                 out_pass,
    output logic [17*ROWS-1:0]         out_group,
    output logic [26:0]                out_t,
    output logic [$clog2(ROWS+1)-1:0]  busy
);
  localparam NW = $clog2(NUMBERS);
  localparam DW = $clog2(DEPTH);
  localparam BW = $clog2(ROWS + 1);
  localparam LATENCY = 5;
  // What goes with a number: high, low, words, passes, pass, number.
  localparam HEADER = 2 + 9 + 7 + 6 + NW;

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
      header <= back_valid ? back_header : {new_high, new_low, new_words, new_passes, 6'd0, new_number};
    end
  end

  // The words that wait, and the groups of digits.
  logic [78:0] waiting[0:DEPTH-1];
  logic [78:0] waited;
  logic [DW-1:0] waiting_in, waiting_out;
  logic wait_valid;
  logic [78:0] end_words;
  logic [17*ROWS-1:0] groups[0:64*NUMBERS-1];
  logic [17*ROWS-1:0] digits_1, digits;
  always_ff @(posedge clk) begin
    if (wait_valid) waiting[waiting_in] <= end_words;
    waited <= waiting[waiting_out];
    if (group_valid) groups[{group_number, group_pass}] <= group;
    digits_1 <= groups[{header[NW-1:0], header[NW+:6]}];
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
  logic [ROWS:0] row_valid, row_first, row_last;
  logic [27*(ROWS+1)-1:0] row_t;
  logic [26*(ROWS+1)-1:0] row_a, row_m;
  logic valid_2, first_2, last_2;
  logic [78:0] words_2;
  always_ff @(posedge clk) begin
    on_1     <= on && !reset;
    first_1  <= on && first;
    last_1   <= on && last;
    is_new_1 <= is_new;
    valid_2  <= on_1 && !reset;
    first_2  <= first_1;
    last_2   <= last_1;
    words_2  <= is_new_1 ? {new_t, new_a, new_m} : waited;
    digits   <= digits_1;
  end
  assign row_valid[0] = valid_2;
  assign row_first[0] = first_2;
  assign row_last[0] = last_2;
  assign {row_t[26:0], row_a[25:0], row_m[25:0]} = words_2;

  for (genvar r = 0; r < ROWS; r++) begin : rows
    // Digit r waits for the number to reach row r, its quotient digit for the number to reach the end.
    logic [16:0] digit;
    if (r == 0) begin : at_once
      assign digit = digits[16:0];
    end else begin : later
      delay #(.WIDTH(17), .CYCLES(LATENCY * r)) wait_in (.clk(clk), .in(digits[17*r+:17]), .out(digit));
    end
    delay #(.WIDTH(17), .CYCLES(LATENCY * (ROWS - r))) wait_out (
        .clk(clk), .in(row_t[27*r+:17]), .out(out_group[17*r+:17])
    );
    row row_r (
        .clk(clk),
        .reset(reset),
        .in_valid(row_valid[r]),
        .in_first(row_first[r]),
        .in_last(row_last[r]),
        .in_t(row_t[27*r+:27]),
        .in_a(row_a[26*r+:26]),
        .in_m(row_m[26*r+:26]),
        .in_digit(digit),
        .out_valid(row_valid[r+1]),
        .out_first(row_first[r+1]),
        .out_last(row_last[r+1]),
        .out_t(row_t[27*(r+1)+:27]),
        .out_a(row_a[26*(r+1)+:26]),
        .out_m(row_m[26*(r+1)+:26])
    );
  end
  // Two cycles of the choice, and the rows.
  delay #(.WIDTH(HEADER), .CYCLES(2 + LATENCY * ROWS)) headers (.clk(clk), .in(header), .out(end_header));

  wire end_valid = row_valid[ROWS];
  wire end_first = end_valid && row_first[ROWS];
  wire [5:0] end_pass = end_header[NW+:6];
  wire [5:0] next_pass = end_pass + 1;
  wire end_final = {1'b0, end_pass} + 7'd1 == end_header[NW+6+:7];
  wire end_high = end_header[HEADER-1];
  wire end_low = end_header[HEADER-2];
  assign end_words = {row_t[27*ROWS+:27], row_a[26*ROWS+:26], row_m[26*ROWS+:26]};
  assign wait_valid = end_valid && !end_final;

  logic [NW:0] back_count;
  wire unused = &{back_count, row_last[ROWS]};
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

  assign quotient_valid = end_first && end_low;
  assign word_valid = end_valid && end_final && end_high;
  assign result_valid = end_first && end_final;
  assign out_number = end_header[NW-1:0];
  assign out_pass = end_pass;
  assign out_t = row_t[27*ROWS+:27];

  // A row's multipliers have their factors a cycle after its input.
  logic [BW-1:0] count;
  always_comb begin
    count = 0;
    for (int r = 0; r < ROWS; r++) count = count + BW'(row_valid[r]);
  end
  always_ff @(posedge clk) busy <= reset ? BW'(0) : count;
endmodule
