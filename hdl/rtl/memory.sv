// Shares the AXI4 master between the units: reads of runs of beats, and writes of single ones.
//
// Reads: a request names a beat and a length from 1; it is cut at multiples of 4 KiB, as AXI wants. Beats come back in
// the order of requests (one AXI identifier), and a unit takes them whenever they come. Writes: one beat a request, with
// strobes, which a memory controller likes less than bursts; `done` says that the last write of a job is in memory, by
// its tag: only then may another read it.
//
// Turns go round: a unit that waits is served after at most one request of each other one. While `halt` is high no new
// request is taken; `quiet` says that none is on its way.
module memory #(
    parameter READERS = 3,
    parameter WRITERS = 3,
    parameter TAG = 3,
    parameter DEPTH = 32  // transactions on their way, each direction
) (
    input  logic                    clk,
    input  logic                    reset,
    input  logic                    halt,
    output logic                    quiet,
    output logic [1:0]              moved,  // beats, in this cycle
    // Units, packed: unit 0 in the lowest bits.
    input  logic [READERS-1:0]      read_valid,
    output logic [READERS-1:0]      read_ready,
    input  logic [32*READERS-1:0]   read_at,
    input  logic [8*READERS-1:0]    read_length,
    output logic [READERS-1:0]      beat_valid,
    output logic [511:0]            beat_data,
    input  logic [WRITERS-1:0]      write_valid,
    output logic [WRITERS-1:0]      write_ready,
    input  logic [32*WRITERS-1:0]   write_at,
    input  logic [512*WRITERS-1:0]  write_data,
    input  logic [64*WRITERS-1:0]   write_strobe,
    input  logic [WRITERS-1:0]      write_last,
    input  logic [TAG*WRITERS-1:0]  write_tag,
    output logic                    done_valid,
    output logic [TAG-1:0]          done_tag,
    output logic [$clog2(WRITERS)-1:0] done_writer,
    // AXI4, 512 bits.
    output logic                    axi_arvalid,
    input  logic                    axi_arready,
    output logic [37:0]             axi_araddr,
    output logic [7:0]              axi_arlen,
    input  logic                    axi_rvalid,
    output logic                    axi_rready,
    input  logic [511:0]            axi_rdata,
    input  logic                    axi_rlast,
    output logic                    axi_awvalid,
    input  logic                    axi_awready,
    output logic [37:0]             axi_awaddr,
    output logic                    axi_wvalid,
    input  logic                    axi_wready,
    output logic [511:0]            axi_wdata,
    output logic [63:0]             axi_wstrb,
    input  logic                    axi_bvalid,
    output logic                    axi_bready
);
  localparam RW = $clog2(READERS) > 0 ? $clog2(READERS) : 1;
  localparam WW = $clog2(WRITERS) > 0 ? $clog2(WRITERS) : 1;
  localparam DW = $clog2(DEPTH);

  // Whose turn it is: the first that waits behind the last one served.
  logic [RW-1:0] reader, last_reader;
  logic reader_found;
  // Those behind the last one, if any waits, else all.
  wire [READERS-1:0] readers_behind = read_valid & ~((READERS'(2) << last_reader) - READERS'(1));
  wire [READERS-1:0] readers = readers_behind != 0 ? readers_behind : read_valid;
  assign reader_found = read_valid != 0;
  always_comb begin
    reader = 0;
    if (reader_found) for (int i = READERS - 1; i >= 0; i--) if (readers[i]) reader = RW'(i);
  end

  // The rest of the request that is being cut.
  logic [31:0] at;
  logic [7:0] left;
  logic [RW-1:0] owner;
  // Beats up to the next multiple of 4 KiB.
  wire [7:0] room = 8'd64 - {2'd0, at[5:0]};
  wire [7:0] burst = left < room ? left : room;

  // Owners of bursts on their way, oldest at `first_read`.
  logic [RW-1:0] owners[0:DEPTH-1];
  logic [DW-1:0] first_read, next_read;
  logic [DW:0] reads;
  wire read_taken = axi_arvalid && axi_arready;
  wire read_over = axi_rvalid && axi_rready && axi_rlast;

  assign axi_arvalid = left != 0 && reads != (DW + 1)'(DEPTH);
  assign axi_araddr = {at, 6'd0};
  assign axi_arlen = burst - 1;
  assign axi_rready = 1;
  assign beat_data = axi_rdata;
  always_comb begin
    beat_valid = 0;
    beat_valid[owners[first_read]] = axi_rvalid;
    read_ready = 0;
    read_ready[reader] = reader_found && left == 0 && !halt;
  end

  always_ff @(posedge clk) begin
    if (reset) begin
      left <= 0;
      last_reader <= 0;
      first_read <= 0;
      next_read <= 0;
      reads <= 0;
    end else begin
      if (left == 0 && reader_found && !halt) begin
        at <= read_at[32*reader+:32];
        left <= read_length[8*reader+:8];
        owner <= reader;
        last_reader <= reader;
      end else if (read_taken) begin
        at <= at + {24'd0, burst};
        left <= left - burst;
      end
      if (read_taken) begin
        owners[next_read] <= owner;
        next_read <= next_read + 1;
      end
      if (read_over) first_read <= first_read + 1;
      reads <= reads + {{DW{1'b0}}, read_taken} - {{DW{1'b0}}, read_over};
    end
  end

  logic [WW-1:0] writer, last_writer;
  logic writer_found;
  // Those behind the last one, if any waits, else all.
  wire [WRITERS-1:0] writers_behind = write_valid & ~((WRITERS'(2) << last_writer) - WRITERS'(1));
  wire [WRITERS-1:0] writers = writers_behind != 0 ? writers_behind : write_valid;
  assign writer_found = write_valid != 0;
  always_comb begin
    writer = 0;
    if (writer_found) for (int i = WRITERS - 1; i >= 0; i--) if (writers[i]) writer = WW'(i);
  end

  // Address and data go separately; a new write begins as both go, or are gone.
  logic [WW+TAG:0] written[0:DEPTH-1];
  logic [DW-1:0] first_write, next_write;
  logic [DW:0] writes;
  wire write_free = (!axi_awvalid || axi_awready) && (!axi_wvalid || axi_wready) && writes != (DW + 1)'(DEPTH);
  wire write_taken = write_free && writer_found && !halt;
  wire write_over = axi_bvalid && axi_bready;

  assign axi_bready = 1;
  always_comb begin
    write_ready = 0;
    write_ready[writer] = write_taken;
  end

  always_ff @(posedge clk) begin
    done_valid <= 0;
    if (reset) begin
      axi_awvalid <= 0;
      axi_wvalid <= 0;
      last_writer <= 0;
      first_write <= 0;
      next_write <= 0;
      writes <= 0;
    end else begin
      if (axi_awready) axi_awvalid <= 0;
      if (axi_wready) axi_wvalid <= 0;
      if (write_taken) begin
        axi_awvalid <= 1;
        axi_wvalid <= 1;
        axi_awaddr <= {write_at[32*writer+:32], 6'd0};
        axi_wdata <= write_data[512*writer+:512];
        axi_wstrb <= write_strobe[64*writer+:64];
        written[next_write] <= {writer, write_last[writer], write_tag[TAG*writer+:TAG]};
        next_write <= next_write + 1;
        last_writer <= writer;
      end
      if (write_over) begin
        done_valid <= written[first_write][TAG];
        done_tag <= written[first_write][TAG-1:0];
        done_writer <= written[first_write][WW+TAG:TAG+1];
        first_write <= first_write + 1;
      end
      writes <= writes + {{DW{1'b0}}, write_taken} - {{DW{1'b0}}, write_over};
    end
  end

  assign moved = {1'b0, axi_rvalid} + {1'b0, write_taken};
  assign quiet = left == 0 && reads == 0 && writes == 0 && !axi_awvalid && !axi_wvalid;
endmodule
