// The card in a process: the Verilated model with its memory, over standard input and output.
//
// A request is an operation and the bytes of its payload, 32 bits each, an address of 64 bits, and the payload; a reply
// a status (0, or 1 where the request is refused), the bytes of its payload, and the payload. All is little-endian. The
// end of the input ends the process.
//
//     0 hello                           → "ciphergram card 1\n"
//     1 read a register     address     → 32 bits
//     2 write a register    address, 32 bits
//     3 upload              a byte's address, bytes
//     4 download            a byte's address, 64 bits: how many → bytes
//     5 run                 64 bits: most cycles → 32 bits: the head, once all is done or the cycles are over
//     6 reset

#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <vector>

#include <unistd.h>

#include "Vcard.h"
#include "verilated.h"

namespace {

constexpr size_t BEAT = 64;
constexpr uint32_t MOST = 1 << 20;  // bytes of a payload
// Cycles from an address to its first beat, and from a beat to its response: those of DDR4 behind a shell, about.
constexpr uint64_t READ_LATENCY = 60, WRITE_LATENCY = 20;

enum Register : uint16_t { MEMORY = 0x00c, STATUS = 0x014, HEAD = 0x030 };

// A beat that is read, and when it comes.
struct Beat {
    uint64_t cycle;
    uint64_t at;
    bool last;
};

class Card {
  public:
    Card() {
        reset();
        memory_.resize(BEAT * read(MEMORY));
    }

    void reset() {
        reads_.clear();
        responses_.clear();
        address_.clear();
        data_.clear();
        card_.reset = 1;
        for (int i = 0; i < 4; i++) step();
        card_.reset = 0;
        step();
    }

    uint32_t read(uint16_t at) {
        card_.axil_araddr = at;
        card_.axil_arvalid = 1;
        card_.axil_rready = 1;
        while (!(settle(), card_.axil_arready)) step();
        step();
        card_.axil_arvalid = 0;
        while (!(settle(), card_.axil_rvalid)) step();
        const uint32_t value = card_.axil_rdata;
        step();
        return value;
    }

    void write(uint16_t at, uint32_t value) {
        card_.axil_awaddr = at;
        card_.axil_wdata = value;
        card_.axil_wstrb = 15;
        card_.axil_bready = 1;
        card_.axil_awvalid = card_.axil_wvalid = 1;
        while (!(settle(), card_.axil_awready && card_.axil_wready)) step();
        step();
        card_.axil_awvalid = card_.axil_wvalid = 0;
        while (!(settle(), card_.axil_bvalid)) step();
        step();
    }

    // Returns the room at an address; null where there is none.
    uint8_t *memory(uint64_t at, uint64_t size) {
        return at <= memory_.size() && size <= memory_.size() - at ? memory_.data() + at : nullptr;
    }

    uint32_t run(uint64_t cycles) {
        if (!(read(STATUS) & 1)) {
            while (cycles-- && !card_.irq) step();
        }
        return read(HEAD);
    }

  private:
    void settle() {
        card_.clk = 0;
        card_.eval();
    }

    // One cycle of the card, and of the memory behind its master.
    void step() {
        const bool has_read = !reads_.empty() && reads_.front().cycle <= cycle_;
        card_.axi_arready = reads_.size() < 1024;
        card_.axi_awready = card_.axi_wready = 1;
        card_.axi_rvalid = has_read;
        card_.axi_bvalid = !responses_.empty() && responses_.front() <= cycle_;
        if (has_read) {
            // Where there is no memory, zeros.
            const uint8_t *from = memory(reads_.front().at, BEAT);
            if (from) std::memcpy(&card_.axi_rdata, from, BEAT);
            else std::memset(&card_.axi_rdata, 0, BEAT);
            card_.axi_rlast = reads_.front().last;
        }
        settle();
        const bool read_taken = card_.axi_rvalid && card_.axi_rready;
        const bool response_taken = card_.axi_bvalid && card_.axi_bready;
        if (card_.axi_arvalid && card_.axi_arready) {
            for (unsigned i = 0; i <= card_.axi_arlen; i++)
                reads_.push_back({cycle_ + READ_LATENCY, card_.axi_araddr + BEAT * i, i == card_.axi_arlen});
        }
        if (card_.axi_awvalid) address_.push_back(card_.axi_awaddr);
        if (card_.axi_wvalid) {
            Written written{{}, card_.axi_wstrb};
            std::memcpy(written.bytes, &card_.axi_wdata, BEAT);
            data_.push_back(written);
        }
        if (!address_.empty() && !data_.empty()) {
            uint8_t *to = memory(address_.front(), BEAT);
            for (size_t i = 0; to && i < BEAT; i++)
                if (data_.front().strobe >> i & 1) to[i] = data_.front().bytes[i];
            address_.pop_front();
            data_.pop_front();
            responses_.push_back(cycle_ + WRITE_LATENCY);
        }
        if (read_taken) reads_.pop_front();
        if (response_taken) responses_.pop_front();
        card_.clk = 1;
        card_.eval();
        cycle_++;
    }

    struct Written {
        uint8_t bytes[BEAT];
        uint64_t strobe;
    };

    Vcard card_;
    std::vector<uint8_t> memory_;
    std::deque<Beat> reads_;
    std::deque<uint64_t> address_, responses_;
    std::deque<Written> data_;
    uint64_t cycle_ = 0;
};

bool take(void *to, size_t size) {
    for (auto *at = static_cast<uint8_t *>(to); size;) {
        const ssize_t got = ::read(STDIN_FILENO, at, size);
        if (got <= 0) return false;
        at += got;
        size -= got;
    }
    return true;
}

bool give(const void *from, size_t size) {
    for (auto *at = static_cast<const uint8_t *>(from); size;) {
        const ssize_t gone = ::write(STDOUT_FILENO, at, size);
        if (gone <= 0) return false;
        at += gone;
        size -= gone;
    }
    return true;
}

bool reply(bool done, const void *payload = nullptr, uint32_t size = 0) {
    const uint32_t head[2] = {done ? 0u : 1u, size};
    return give(head, sizeof head) && give(payload, size);
}

struct Request {
    uint32_t operation, size;
    uint64_t address;
};

// Answers a request; false at the end.
bool answer(Card &card, const Request &request, const std::vector<uint8_t> &payload) {
    uint64_t number = 0;
    std::memcpy(&number, payload.data(), payload.size() < 8 ? payload.size() : 8);
    const bool is_register = request.address < 0x10000 && request.address % 4 == 0;
    switch (request.operation) {
    case 0:
        return reply(true, "ciphergram card 1\n", 18);
    case 1: {
        if (!is_register) return reply(false);
        const uint32_t value = card.read(request.address);
        return reply(true, &value, 4);
    }
    case 2:
        if (!is_register || payload.size() != 4) return reply(false);
        card.write(request.address, number);
        return reply(true);
    case 3: {
        uint8_t *to = card.memory(request.address, payload.size());
        if (!to) return reply(false);
        std::memcpy(to, payload.data(), payload.size());
        return reply(true);
    }
    case 4: {
        const uint8_t *from = number <= MOST && payload.size() == 8 ? card.memory(request.address, number) : nullptr;
        return from ? reply(true, from, number) : reply(false);
    }
    case 5: {
        if (payload.size() != 8) return reply(false);
        const uint32_t head = card.run(number);
        return reply(true, &head, 4);
    }
    case 6:
        card.reset();
        return reply(true);
    default:
        return reply(false);
    }
}

}  // namespace

int main() {
    auto card = std::make_unique<Card>();
    Request request;
    std::vector<uint8_t> payload;
    while (take(&request, sizeof request)) {
        if (request.size > MOST) {
            // What follows cannot be told from the next request.
            reply(false);
            return 1;
        }
        payload.resize(request.size);
        if (!take(payload.data(), payload.size()) || !answer(*card, request, payload)) break;
    }
    return 0;
}
