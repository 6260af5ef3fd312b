// The card: registers, a ring of descriptors in memory, and the units that they go to.
//
//            AXI4-Lite ─ registers ─ front ─ scoreboard ─┬─ issue ─ arrays
//                                      │                 ├─ issue ─ tail
//   card memory ─ AXI4 ─ memory ───────┴─────────────────┴─ issue ─ lanes
//
// `front` reads and checks descriptors, the scoreboard holds those in flight and starts each when nothing before it is in
// its way, `issue` makes a job of each item. Units read their operands and write results; a job is done when memory says
// that its last beat is written.
//
// Cycle by cycle, as in pictures/descriptor.svg: one product modulo a number of 512 bits, with a memory that answers at
// once.
//
//     0         the host writes the tail
//     2         the front asks for the descriptor, and has it at 5
//     11        it offers it to the scoreboard, which compares it with its eight entries, one a cycle
//     20        the scoreboard starts it; the array has the job a cycle later, its operands by 30
//     127-359   rows work
//     370, 380  the two beats of the result are written
//     385       the status follows
//     389       the head advances, and the interrupt rises
//
// So 21 cycles go by before the array has its job, and 10 after it gives its last beat.
module card #(
    parameter ARRAYS = 4,
    parameter ROWS = 8,         // of an array, 2 to 22: see packer.sv
    parameter NUMBERS = 16,     // in flight in an array, a power of two from 2
    parameter DESCRIPTORS = 8,  // in flight, a power of two from 2
    parameter [31:0] MEMORY_BEATS = 1 << 20
) (
    input  logic         clk,
    input  logic         reset,
    input  logic         axil_awvalid,
    output logic         axil_awready,
    input  logic [15:0]  axil_awaddr,
    input  logic [2:0]   axil_awprot,
    input  logic         axil_wvalid,
    output logic         axil_wready,
    input  logic [31:0]  axil_wdata,
    input  logic [3:0]   axil_wstrb,
    output logic         axil_bvalid,
    input  logic         axil_bready,
    output logic [1:0]   axil_bresp,
    input  logic         axil_arvalid,
    output logic         axil_arready,
    input  logic [15:0]  axil_araddr,
    input  logic [2:0]   axil_arprot,
    output logic         axil_rvalid,
    input  logic         axil_rready,
    output logic [31:0]  axil_rdata,
    output logic [1:0]   axil_rresp,
    output logic         axi_arvalid,
    input  logic         axi_arready,
    output logic [37:0]  axi_araddr,
    output logic [7:0]   axi_arlen,
    output logic [2:0]   axi_arsize,
    output logic [1:0]   axi_arburst,
    output logic         axi_arid,
    input  logic         axi_rvalid,
    output logic         axi_rready,
    input  logic [511:0] axi_rdata,
    input  logic [1:0]   axi_rresp,
    input  logic         axi_rlast,
    input  logic         axi_rid,
    output logic         axi_awvalid,
    input  logic         axi_awready,
    output logic [37:0]  axi_awaddr,
    output logic [7:0]   axi_awlen,
    output logic [2:0]   axi_awsize,
    output logic [1:0]   axi_awburst,
    output logic         axi_awid,
    output logic         axi_wvalid,
    input  logic         axi_wready,
    output logic [511:0] axi_wdata,
    output logic [63:0]  axi_wstrb,
    output logic         axi_wlast,
    input  logic         axi_bvalid,
    output logic         axi_bready,
    input  logic [1:0]   axi_bresp,
    input  logic         axi_bid,
    output logic         irq
);
  `include "registers.svh"

  // An error that memory answers with is not seen here. What comes of it is a wrong number: tags find it in a sum, and
  // nothing does in a lone ciphertext. It would take a bit of the status register.
  wire unused = &{axil_awprot, axil_arprot, axil_wstrb, axi_rresp, axi_bresp, axi_rid, axi_bid};
  assign axil_bresp = 0;
  assign axil_rresp = 0;
  assign axi_arsize = 6;
  assign axi_arburst = 1;
  assign axi_arid = 0;
  assign axi_awlen = 0;
  assign axi_awsize = 6;
  assign axi_awburst = 1;
  assign axi_awid = 0;
  assign axi_wlast = 1;

  localparam TAG = $clog2(DESCRIPTORS);
  // Users of memory: arrays, then these.
  localparam TAIL = ARRAYS, LANES = ARRAYS + 1, FRONT = ARRAYS + 2, USERS = ARRAYS + 3;
  localparam UW = $clog2(USERS);

  // The host's reset waits until memory is quiet.
  logic restart, draining, quiet;
  logic [1:0] moved;
  wire work_reset = reset || (draining && quiet);
  always_ff @(posedge clk) draining <= !reset && (restart || (draining && !quiet));

  logic [USERS-1:0] read_valid, read_ready, beat_valid, write_valid, write_ready, write_last;
  logic [32*USERS-1:0] read_at, write_at;
  logic [8*USERS-1:0] read_length;
  logic [511:0] beat_data;
  logic [512*USERS-1:0] write_data;
  logic [64*USERS-1:0] write_strobe;
  logic [TAG*USERS-1:0] write_tag;
  logic done_valid;
  logic [TAG-1:0] done_tag;
  logic [UW-1:0] done_writer;

  memory #(
      .READERS(USERS),
      .WRITERS(USERS),
      .TAG(TAG)
  ) memory (
      .clk(clk),
      .reset(work_reset),
      .halt(draining),
      .quiet(quiet),
      .moved(moved),
      .read_valid(read_valid),
      .read_ready(read_ready),
      .read_at(read_at),
      .read_length(read_length),
      .beat_valid(beat_valid),
      .beat_data(beat_data),
      .write_valid(write_valid),
      .write_ready(write_ready),
      .write_at(write_at),
      .write_data(write_data),
      .write_strobe(write_strobe),
      .write_last(write_last),
      .write_tag(write_tag),
      .done_valid(done_valid),
      .done_tag(done_tag),
      .done_writer(done_writer),
      .axi_arvalid(axi_arvalid),
      .axi_arready(axi_arready),
      .axi_araddr(axi_araddr),
      .axi_arlen(axi_arlen),
      .axi_rvalid(axi_rvalid),
      .axi_rready(axi_rready),
      .axi_rdata(axi_rdata),
      .axi_rlast(axi_rlast),
      .axi_awvalid(axi_awvalid),
      .axi_awready(axi_awready),
      .axi_awaddr(axi_awaddr),
      .axi_wvalid(axi_wvalid),
      .axi_wready(axi_wready),
      .axi_wdata(axi_wdata),
      .axi_wstrb(axi_wstrb),
      .axi_bvalid(axi_bvalid),
      .axi_bready(axi_bready)
  );

  logic [31:0] ring, entries, tail_at, fetched;
  logic insert_valid, insert_ready;
  logic [511:0] descriptor;
  logic [31:0] descriptor_at;
  logic [7:0] fault;
  logic [1:0] unit;
  logic [159:0] low, high;

  front front (
      .clk(clk),
      .reset(work_reset),
      .memory_beats(MEMORY_BEATS),
      .ring(ring),
      .entries(entries),
      .tail(tail_at),
      .fetched(fetched),
      .read_valid(read_valid[FRONT]),
      .read_ready(read_ready[FRONT]),
      .read_at(read_at[32*FRONT+:32]),
      .beat_valid(beat_valid[FRONT]),
      .beat_data(beat_data),
      .insert_valid(insert_valid),
      .insert_ready(insert_ready),
      .descriptor(descriptor),
      .descriptor_at(descriptor_at),
      .fault(fault),
      .unit(unit),
      .low(low),
      .high(high)
  );
  assign read_length[8*FRONT+:8] = 1;

  logic [2:0] unit_idle, start;
  logic [511:0] start_descriptor;
  logic [TAG-1:0] start_tag;
  logic retire_valid, retire_ready, empty;
  logic [31:0] retire_at;
  logic [7:0] retire_status;
  wire status_done = done_valid && done_writer == UW'(FRONT);

  scoreboard #(
      .ENTRIES(DESCRIPTORS)
  ) scoreboard (
      .clk(clk),
      .reset(work_reset),
      .insert_valid(insert_valid),
      .insert_ready(insert_ready),
      .descriptor(descriptor),
      .descriptor_at(descriptor_at),
      .fault(fault),
      .unit(unit),
      .low(low),
      .high(high),
      .unit_idle(unit_idle),
      .start(start),
      .start_descriptor(start_descriptor),
      .start_tag(start_tag),
      .done_valid(done_valid && !status_done),
      .done_tag(done_tag),
      .retire_valid(retire_valid),
      .retire_ready(retire_ready),
      .retire_at(retire_at),
      .retire_status(retire_status),
      .empty(empty)
  );

  // One status on its way at a time, in the highest word of the descriptor.
  logic status_waits;
  logic [7:0] status;
  assign write_valid[FRONT] = retire_valid && !status_waits;
  assign write_at[32*FRONT+:32] = retire_at;
  assign write_data[512*FRONT+:512] = {24'd0, retire_status, 480'd0};
  assign write_strobe[64*FRONT+:64] = {4'hf, 60'd0};
  assign write_last[FRONT] = 1;
  assign write_tag[TAG*FRONT+:TAG] = 0;
  assign retire_ready = write_ready[FRONT] && !status_waits;
  always_ff @(posedge clk) begin
    if (work_reset) begin
      status_waits <= 0;
    end else if (retire_valid && retire_ready) begin
      status_waits <= 1;
      status <= retire_status;
    end else if (status_done) begin
      status_waits <= 0;
    end
  end

  // Jobs of each kind of unit.
  logic [2:0] job_valid, job_ready;
  logic [511:0] array_job, tail_job, lanes_job;
  logic [TAG-1:0] array_tag, tail_tag, lanes_tag;

  issue #(.TAG(TAG)) issue_array (
      .clk(clk), .reset(work_reset), .start(start[UNIT_ARRAY]), .descriptor(start_descriptor), .tag(start_tag),
      .idle(unit_idle[UNIT_ARRAY]), .job_valid(job_valid[UNIT_ARRAY]), .job_ready(job_ready[UNIT_ARRAY]),
      .job(array_job), .job_tag(array_tag)
  );
  issue #(.TAG(TAG)) issue_tail (
      .clk(clk), .reset(work_reset), .start(start[UNIT_TAIL]), .descriptor(start_descriptor), .tag(start_tag),
      .idle(unit_idle[UNIT_TAIL]), .job_valid(job_valid[UNIT_TAIL]), .job_ready(job_ready[UNIT_TAIL]),
      .job(tail_job), .job_tag(tail_tag)
  );
  issue #(.TAG(TAG)) issue_lanes (
      .clk(clk), .reset(work_reset), .start(start[UNIT_LANES]), .descriptor(start_descriptor), .tag(start_tag),
      .idle(unit_idle[UNIT_LANES]), .job_valid(job_valid[UNIT_LANES]), .job_ready(job_ready[UNIT_LANES]),
      .job(lanes_job), .job_tag(lanes_tag)
  );

  // Arrays take jobs in turn: of those that are ready, the first behind the last one that took a job.
  localparam AW = ARRAYS > 1 ? $clog2(ARRAYS) : 1;
  logic [ARRAYS-1:0] array_ready;
  logic [AW-1:0] array;
  localparam BUSY = $clog2(ROWS + 1);
  logic [BUSY*ARRAYS-1:0] rows_busy;
  assign job_ready[UNIT_ARRAY] = array_ready != 0;
  logic [AW-1:0] last_array;
  wire [ARRAYS-1:0] arrays_behind = array_ready & ~((ARRAYS'(2) << last_array) - ARRAYS'(1));
  wire [ARRAYS-1:0] arrays_next = arrays_behind != 0 ? arrays_behind : array_ready;
  always_comb begin
    array = 0;
    for (int i = ARRAYS - 1; i >= 0; i--) if (arrays_next[i]) array = AW'(i);
  end
  always_ff @(posedge clk) begin
    if (work_reset) last_array <= 0;
    else if (job_valid[UNIT_ARRAY] && job_ready[UNIT_ARRAY]) last_array <= array;
  end

  logic [15:0] busy;
  always_comb begin
    busy = 0;
    for (int i = 0; i < ARRAYS; i++) busy = busy + {{(15 - BUSY) {1'b0}}, rows_busy[BUSY*i+:BUSY], 1'b0};
  end

  for (genvar i = 0; i < ARRAYS; i++) begin : arrays
    array #(
        .ROWS(ROWS),
        .NUMBERS(NUMBERS),
        .TAG(TAG)
    ) array_i (
        .clk(clk),
        .reset(work_reset),
        .job_valid(job_valid[UNIT_ARRAY] && array == AW'(i)),
        .job_ready(array_ready[i]),
        .job_a_at(array_job[FIELD_A_AT_LOW+:32]),
        .job_b_at(array_job[FIELD_B_AT_LOW+:32]),
        .job_c_at(array_job[FIELD_C_AT_LOW+:32]),
        .job_m_at(array_job[FIELD_M_AT_LOW+:32]),
        .job_d_at(array_job[FIELD_D_AT_LOW+:32]),
        .job_a_length(array_job[FIELD_A_LENGTH_LOW+:8]),
        .job_b_length(array_job[FIELD_B_LENGTH_LOW+:8]),
        .job_c_length(array_job[FIELD_C_LENGTH_LOW+:8]),
        .job_m_length(array_job[FIELD_M_LENGTH_LOW+:8]),
        .job_d_length(array_job[FIELD_D_LENGTH_LOW+:8]),
        .job_words(array_job[FIELD_WORDS_LOW+:9]),
        .job_passes(array_job[FIELD_PASSES_LOW+:8]),
        .job_shift(array_job[FIELD_SHIFT_LOW+:16]),
        .job_with_c(array_job[FIELD_FLAGS_LOW+FLAG_WITH_C]),
        .job_with_m(array_job[FIELD_FLAGS_LOW+FLAG_WITH_M]),
        .job_high(array_job[FIELD_FLAGS_LOW+FLAG_HIGH]),
        .job_low(array_job[FIELD_FLAGS_LOW+FLAG_LOW]),
        .job_tag(array_tag),
        .read_valid(read_valid[i]),
        .read_ready(read_ready[i]),
        .read_at(read_at[32*i+:32]),
        .read_length(read_length[8*i+:8]),
        .beat_valid(beat_valid[i]),
        .beat_data(beat_data),
        .write_valid(write_valid[i]),
        .write_ready(write_ready[i]),
        .write_at(write_at[32*i+:32]),
        .write_data(write_data[512*i+:512]),
        .write_last(write_last[i]),
        .write_tag(write_tag[TAG*i+:TAG]),
        .busy(rows_busy[BUSY*i+:BUSY])
    );
    assign write_strobe[64*i+:64] = '1;
  end

  tail #(.TAG(TAG)) tail (
      .clk(clk),
      .reset(work_reset),
      .job_valid(job_valid[UNIT_TAIL]),
      .job_ready(job_ready[UNIT_TAIL]),
      .job(tail_job),
      .job_tag(tail_tag),
      .read_valid(read_valid[TAIL]),
      .read_ready(read_ready[TAIL]),
      .read_at(read_at[32*TAIL+:32]),
      .read_length(read_length[8*TAIL+:8]),
      .beat_valid(beat_valid[TAIL]),
      .beat_data(beat_data),
      .write_valid(write_valid[TAIL]),
      .write_ready(write_ready[TAIL]),
      .write_at(write_at[32*TAIL+:32]),
      .write_data(write_data[512*TAIL+:512]),
      .write_last(write_last[TAIL]),
      .write_tag(write_tag[TAG*TAIL+:TAG])
  );
  assign write_strobe[64*TAIL+:64] = '1;

  lanes #(.TAG(TAG)) lanes (
      .clk(clk),
      .reset(work_reset),
      .job_valid(job_valid[UNIT_LANES]),
      .job_ready(job_ready[UNIT_LANES]),
      .job(lanes_job),
      .job_tag(lanes_tag),
      .read_valid(read_valid[LANES]),
      .read_ready(read_ready[LANES]),
      .read_at(read_at[32*LANES+:32]),
      .read_length(read_length[8*LANES+:8]),
      .beat_valid(beat_valid[LANES]),
      .beat_data(beat_data),
      .write_valid(write_valid[LANES]),
      .write_ready(write_ready[LANES]),
      .write_at(write_at[32*LANES+:32]),
      .write_data(write_data[512*LANES+:512]),
      .write_last(write_last[LANES]),
      .write_tag(write_tag[TAG*LANES+:TAG])
  );
  assign write_strobe[64*LANES+:64] = '1;

  registers #(
      .ARRAYS(ARRAYS),
      .ROWS(ROWS),
      .NUMBERS(NUMBERS),
      .DESCRIPTORS(DESCRIPTORS),
      .MEMORY_BEATS(MEMORY_BEATS)
  ) registers (
      .clk(clk),
      .reset(reset),
      .axil_awvalid(axil_awvalid),
      .axil_awready(axil_awready),
      .axil_awaddr(axil_awaddr),
      .axil_wvalid(axil_wvalid),
      .axil_wready(axil_wready),
      .axil_wdata(axil_wdata),
      .axil_bvalid(axil_bvalid),
      .axil_bready(axil_bready),
      .axil_arvalid(axil_arvalid),
      .axil_arready(axil_arready),
      .axil_araddr(axil_araddr),
      .axil_rvalid(axil_rvalid),
      .axil_rready(axil_rready),
      .axil_rdata(axil_rdata),
      .restart(restart),
      .work_reset(work_reset),
      .ring(ring),
      .entries(entries),
      .tail(tail_at),
      .idle(empty && quiet && fetched == tail_at && !status_waits),
      .retired(status_waits && status_done),
      .retired_status(status),
      .busy(busy),
      .product(done_valid && done_writer < UW'(TAIL)),
      .moved(moved),
      .irq(irq)
  );
endmodule
