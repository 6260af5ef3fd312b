// Starts each descriptor when what it reads is there and its unit is free, and retires them in order.
//
// It holds `ENTRIES` descriptors in a circle. One that comes in waits for those before it that write what it reads or
// writes, or that read what it writes: a bit for each, found one a cycle, cleared when that one is done. Whatever order
// they end in, their statuses are written in the order in which they came.
//
// Clock. A floorplan would have to argue for the comparators here (a register stage for each, if need be) and for the
// multiplexers of memory.sv. Nobody has made one.
module scoreboard #(
    parameter ENTRIES = 8,
    parameter TAG = $clog2(ENTRIES)
) (
    input  logic           clk,
    input  logic           reset,
    // A descriptor, as `front` has it.
    input  logic           insert_valid,
    output logic           insert_ready,
    input  logic [511:0]   descriptor,
    input  logic [31:0]    descriptor_at,
    input  logic [7:0]     fault,
    input  logic [1:0]     unit,
    input  logic [159:0]   low,
    input  logic [159:0]   high,
    // To the units: which of them can begin.
    input  logic [2:0]     unit_idle,
    output logic [2:0]     start,
    output logic [511:0]   start_descriptor,
    output logic [TAG-1:0] start_tag,
    // An item is in memory.
    input  logic           done_valid,
    input  logic [TAG-1:0] done_tag,
    // The oldest descriptor is done: its status goes to memory.
    output logic           retire_valid,
    input  logic           retire_ready,
    output logic [31:0]    retire_at,
    output logic [7:0]     retire_status,
    output logic           empty
);
  `include "registers.svh"

  logic [511:0] descriptors[0:ENTRIES-1];
  logic [31:0] places[0:ENTRIES-1];
  logic [7:0] faults[0:ENTRIES-1];
  logic [1:0] units[0:ENTRIES-1];
  logic [159:0] lows[0:ENTRIES-1];
  logic [159:0] highs[0:ENTRIES-1];
  logic [31:0] left[0:ENTRIES-1];  // items that are not in memory yet
  logic [ENTRIES-1:0] waits[0:ENTRIES-1];
  logic [ENTRIES-1:0] held, waiting, finished;

  logic [TAG-1:0] oldest, newest;  // `newest` is the next place
  logic [TAG:0] number;
  assign empty = number == 0;

  // Hazards with one entry a cycle.
  logic looking;
  logic [TAG-1:0] look;
  logic [ENTRIES-1:0] found;

  function automatic logic overlap(input logic [31:0] a, input logic [31:0] b, input logic [31:0] x,
                                   input logic [31:0] y);
    overlap = a < y && x < b;
  endfunction

  logic conflict;
  always_comb begin
    conflict = looking && overlap(low[128+:32], high[128+:32], lows[look][128+:32], highs[look][128+:32]);
    if (looking) for (int i = 0; i < 4; i++) begin
      conflict = conflict
          || overlap(low[32*i+:32], high[32*i+:32], lows[look][128+:32], highs[look][128+:32])
          || overlap(low[128+:32], high[128+:32], lows[look][32*i+:32], highs[look][32*i+:32]);
    end
  end

  assign insert_ready = looking && 32'(look) == ENTRIES - 1 && number != (TAG + 1)'(ENTRIES);

  // One unit a cycle looks for its oldest descriptor that waits for nothing.
  logic [1:0] turn;
  logic [TAG-1:0] chosen;
  logic chosen_found;
  always_comb begin
    chosen = 0;
    chosen_found = 0;
    if (waiting != 0) for (int i = ENTRIES - 1; i >= 0; i--) begin
      if (waiting[TAG'(int'(oldest) + i)] && units[TAG'(int'(oldest) + i)] == turn
          && waits[TAG'(int'(oldest) + i)] == 0) begin
        chosen = TAG'(int'(oldest) + i);
        chosen_found = 1;
      end
    end
  end
  always_comb begin
    start = 0;
    start[turn] = chosen_found && unit_idle[turn];
  end
  assign start_descriptor = descriptors[chosen];
  assign start_tag = chosen;

  assign retire_valid = held[oldest] && finished[oldest];
  assign retire_at = places[oldest];
  assign retire_status = faults[oldest] == 0 ? STATUS_DONE : faults[oldest];

  wire last_item = done_valid && left[done_tag] == 1;

  always_ff @(posedge clk) begin
    if (reset) begin
      held <= 0;
      waiting <= 0;
      finished <= 0;
      oldest <= 0;
      newest <= 0;
      number <= 0;
      looking <= 0;
      turn <= 0;
    end else begin
      turn <= turn == 2 ? 0 : turn + 1;
      if (!looking) begin
        looking <= insert_valid && number != (TAG + 1)'(ENTRIES);
        look <= 0;
        found <= 0;
      end else begin
        found[look] <= conflict && held[look] && !finished[look] && !(last_item && done_tag == look);
        look <= look + 1;
        if (insert_ready) begin
          looking <= 0;
          descriptors[newest] <= descriptor;
          places[newest] <= descriptor_at;
          faults[newest] <= fault;
          units[newest] <= unit;
          lows[newest] <= low;
          highs[newest] <= high;
          left[newest] <= descriptor[FIELD_COUNT_LOW+:32];
          held[newest] <= 1;
          waiting[newest] <= fault == 0;
          finished[newest] <= fault != 0;
          waits[newest] <= fault != 0 ? 0 : (found | {conflict, {(ENTRIES - 1) {1'b0}}})
              & held & ~finished & ~({{(ENTRIES - 1) {1'b0}}, last_item} << done_tag);
          newest <= newest + 1;
        end
      end
      if (start != 0) waiting[chosen] <= 0;
      if (done_valid) left[done_tag] <= left[done_tag] - 1;
      if (last_item) begin
        finished[done_tag] <= 1;
        for (int i = 0; i < ENTRIES; i++)
          if (!(insert_ready && TAG'(i) == newest)) waits[i][done_tag] <= 0;
      end
      if (retire_valid && retire_ready) begin
        held[oldest] <= 0;
        oldest <= oldest + 1;
      end
      number <= number + {{TAG{1'b0}}, insert_ready} - {{TAG{1'b0}}, retire_valid && retire_ready};
    end
  end
endmodule
