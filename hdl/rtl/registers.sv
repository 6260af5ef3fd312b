// The registers of the card, on AXI4-Lite.
//
// A write to one that is not for writing, or to none, is taken and does nothing; a read of none is 0. One access at a time
// in each direction. A tail that is more than `entries` ahead of the head, or that goes back, is refused with the fault
// `overrun`, and so is any while the ring is not in memory.
module registers #(
    parameter ARRAYS = 4,
    parameter ROWS = 8,
    parameter NUMBERS = 16,
    parameter DESCRIPTORS = 8,
    parameter [31:0] MEMORY_BEATS = 1 << 20
) (
    input  logic        clk,
    input  logic        reset,        // of the card
    // AXI4-Lite.
    input  logic        axil_awvalid,
    output logic        axil_awready,
    /* verilator lint_off UNUSEDSIGNAL */  // registers are words
    input  logic [15:0] axil_awaddr,
    input  logic        axil_wvalid,
    output logic        axil_wready,
    input  logic [31:0] axil_wdata,
    output logic        axil_bvalid,
    input  logic        axil_bready,
    input  logic        axil_arvalid,
    output logic        axil_arready,
    input  logic [15:0] axil_araddr,
    /* verilator lint_on UNUSEDSIGNAL */
    output logic        axil_rvalid,
    input  logic        axil_rready,
    output logic [31:0] axil_rdata,
    // The card.
    output logic        restart,      // the reset that the host asks for
    input  logic        work_reset,   // that, once nothing is on its way
    output logic [31:0] ring,
    output logic [31:0] entries,
    output logic [31:0] tail,
    input  logic        idle,
    input  logic        retired,      // a descriptor's status is in memory
    input  logic [7:0]  retired_status,
    input  logic [15:0] busy,         // multipliers that have two factors
    input  logic        product,      // a number of `multiply` is in memory
    input  logic [1:0]  moved,        // beats that are read or written
    output logic        irq
);
  `include "registers.svh"

  logic [31:0] head;
  logic [31:0] fault;
  logic [63:0] cycles, busy_cycles, products, beats;

  logic [15:0] written_at;
  logic [31:0] written;
  logic has_address, has_data;
  assign axil_awready = !has_address && !axil_bvalid;
  assign axil_wready = !has_data && !axil_bvalid;
  wire write = has_address && has_data;
  wire takes = write && written_at == REGISTER_TAIL && written - head <= entries && written - head >= tail - head
      && {1'b0, ring} + {1'b0, entries} <= {1'b0, MEMORY_BEATS};

  assign axil_arready = !axil_rvalid;

  logic [31:0] value;
  always_comb begin
    case ({axil_araddr[15:2], 2'd0})
      REGISTER_ID: value = ID;
      REGISTER_VERSION: value = VERSION;
      REGISTER_SIZES: value = {8'(DESCRIPTORS), 8'(NUMBERS), 8'(ROWS), 8'(ARRAYS)};
      REGISTER_MEMORY: value = MEMORY_BEATS;
      REGISTER_STATUS: value = {31'd0, idle && head == tail};
      REGISTER_RING: value = ring;
      REGISTER_ENTRIES: value = entries;
      REGISTER_TAIL: value = tail;
      REGISTER_HEAD: value = head;
      REGISTER_FAULT: value = fault;
      REGISTER_CYCLES: value = cycles[31:0];
      REGISTER_CYCLES + 16'd4: value = cycles[63:32];
      REGISTER_BUSY: value = busy_cycles[31:0];
      REGISTER_BUSY + 16'd4: value = busy_cycles[63:32];
      REGISTER_PRODUCTS: value = products[31:0];
      REGISTER_PRODUCTS + 16'd4: value = products[63:32];
      REGISTER_BEATS: value = beats[31:0];
      REGISTER_BEATS + 16'd4: value = beats[63:32];
      default: value = 0;
    endcase
  end

  always_ff @(posedge clk) begin
    restart <= 0;
    if (reset) begin
      has_address <= 0;
      has_data <= 0;
      axil_bvalid <= 0;
      axil_rvalid <= 0;
    end else begin
      if (axil_awvalid && axil_awready) begin
        has_address <= 1;
        written_at <= {axil_awaddr[15:2], 2'd0};
      end
      if (axil_wvalid && axil_wready) begin
        has_data <= 1;
        written <= axil_wdata;
      end
      if (write) begin
        has_address <= 0;
        has_data <= 0;
        axil_bvalid <= 1;
        restart <= written_at == REGISTER_CONTROL && written[0];
      end else if (axil_bready) begin
        axil_bvalid <= 0;
      end
      if (axil_arvalid && axil_arready) begin
        axil_rvalid <= 1;
        axil_rdata <= value;
      end else if (axil_rready) begin
        axil_rvalid <= 0;
      end
    end

    if (reset || work_reset) begin
      ring <= 0;
      entries <= 0;
      tail <= 0;
      head <= 0;
      fault <= 0;
      cycles <= 0;
      busy_cycles <= 0;
      products <= 0;
      beats <= 0;
      irq <= 0;
    end else begin
      if (write) begin
        case (written_at)
          REGISTER_RING: ring <= written;
          REGISTER_ENTRIES: entries <= written;
          REGISTER_TAIL:
          if (takes) begin
            tail <= written;
            irq <= 0;
          end else if (fault == 0) begin
            fault <= {written[23:0], STATUS_OVERRUN};
          end
          default: ;
        endcase
      end
      if (retired) begin
        head <= head + 1;
        if (retired_status != STATUS_DONE && fault == 0) fault <= {head[23:0], retired_status};
        if (head + 1 == (takes ? written : tail)) irq <= 1;
      end
      if (!idle) cycles <= cycles + 1;
      busy_cycles <= busy_cycles + {48'd0, busy};
      products <= products + {63'd0, product};
      beats <= beats + {62'd0, moved};
    end
  end
endmodule
