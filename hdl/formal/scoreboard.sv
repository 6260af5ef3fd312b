// Proves of `scoreboard`, for its first cycles after a reset: a descriptor begins once, and only when all earlier ones
// that write what it reads or writes, or read what it writes, are in memory; statuses leave in the order in which
// descriptors came, each after all its items.
//
// Any two descriptors are watched. Ranges have 4 bits in place of 32: they are only compared.
module scoreboard_proof (
    input logic         clk,
    input logic         insert_valid,
    input logic [39:0]  low, high,  // 5 ranges of 8 bits
    input logic [1:0]   unit,
    input logic         fault,
    input logic         two_items,
    input logic [2:0]   unit_idle,
    input logic         done_valid,
    input logic [1:0]   done_tag,
    input logic         retire_ready
);
  `include "registers.svh"
  localparam ENTRIES = 4;
  (* anyconst *) logic [2:0] earlier, later;
  logic reset = 1;
  logic insert_ready, retire_valid, empty;
  logic [2:0] start;
  logic [511:0] start_descriptor;
  logic [1:0] start_tag;
  logic [31:0] retire_at;
  logic [7:0] retire_status;

  logic [2:0] inserted = 0, retired = 0;
  wire [511:0] descriptor = {448'd0, 30'd0, two_items, !two_items, 32'd0};
  logic [159:0] wide_low, wide_high;
  always_comb for (int i = 0; i < 5; i++) begin
    wide_low[32*i+:32] = {28'd0, low[8*i+:4]};
    wide_high[32*i+:32] = {28'd0, high[8*i+:4]};
  end
  scoreboard #(.ENTRIES(ENTRIES)) scoreboard (
      .clk(clk), .reset(reset), .insert_valid(insert_valid), .insert_ready(insert_ready), .descriptor(descriptor),
      .descriptor_at({29'd0, inserted}), .fault(fault ? STATUS_SIZE : 8'd0), .unit(unit), .low(wide_low), .high(wide_high),
      .unit_idle(unit_idle), .start(start), .start_descriptor(start_descriptor), .start_tag(start_tag),
      .done_valid(done_valid), .done_tag(done_tag), .retire_valid(retire_valid), .retire_ready(retire_ready),
      .retire_at(retire_at), .retire_status(retire_status), .empty(empty)
  );

  // Of each place: the number of its descriptor, whether it runs, and its items that are not in memory.
  logic [2:0] numbers[0:ENTRIES-1];
  logic [ENTRIES-1:0] runs = 0, faulty = 0;
  logic [1:0] left[0:ENTRIES-1];
  wire [1:0] place = inserted[1:0];

  // The two that are watched.
  logic [159:0] earlier_low, earlier_high;
  logic earlier_open = 0, conflict = 0;
  function automatic logic meet(input logic [159:0] a_low, input logic [159:0] a_high, input logic [159:0] b_low,
                                input logic [159:0] b_high);
    meet = 0;
    // The last range is written, the others are read.
    for (int i = 0; i < 5; i++) begin
      if (a_low[32*i+:32] < b_high[128+:32] && b_low[128+:32] < a_high[32*i+:32]) meet = 1;
      if (b_low[32*i+:32] < a_high[128+:32] && a_low[128+:32] < b_high[32*i+:32]) meet = 1;
    end
  endfunction

  logic held = 0;
  always @(posedge clk) begin
    reset <= 0;
    held <= insert_valid && !insert_ready && !reset;
    if (reset) begin
      assume (!insert_valid && !done_valid && !retire_ready);
    end else begin
      assume (earlier < later && unit != 3);
      // A descriptor is offered until it is taken, and does not change.
      if (held) assume (insert_valid && $stable({low, high, unit, fault, two_items}));
      // A unit ends items of descriptors that it has begun.
      if (done_valid) assume (runs[done_tag] && left[done_tag] != 0);
      // Numbers are not used twice.
      assume (inserted != 7);

      if (insert_valid && insert_ready) begin
        inserted <= inserted + 1;
        numbers[place] <= inserted;
        faulty[place] <= fault;
        runs[place] <= 0;
        left[place] <= fault ? 0 : two_items ? 2 : 1;
        if (inserted == earlier) begin
          earlier_low <= wide_low;
          earlier_high <= wide_high;
          earlier_open <= !fault;
        end
        if (inserted == later) conflict <= meet(earlier_low, earlier_high, wide_low, wide_high);
      end
      if (start != 0) begin
        runs[start_tag] <= 1;
        assert (start == 1 || start == 2 || start == 4);
        assert ((start & ~unit_idle) == 0);
        assert (!runs[start_tag] && !faulty[start_tag] && left[start_tag] != 0);
        if (inserted > later && numbers[start_tag] == later) assert (!(conflict && earlier_open));
      end
      if (done_valid) begin
        left[done_tag] <= left[done_tag] - 1;
        if (numbers[done_tag] == earlier && left[done_tag] == 1) earlier_open <= 0;
      end
      if (retire_valid) begin
        assert (retired < inserted && retire_at == {29'd0, retired});
        assert (left[retired[1:0]] == 0 && (retire_status == STATUS_DONE) == !faulty[retired[1:0]]);
        if (retire_ready) retired <= retired + 1;
      end
      assert (inserted - retired <= ENTRIES && empty == (inserted == retired));
      cover (retired == 2 && conflict && earlier == 0 && later == 1);
    end
  end
endmodule
