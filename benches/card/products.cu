// What a card multiplies at most, in CUDA: products 32x32 -> 64 added to sums, and Montgomery products of big numbers
// made of them. JSON lines; `python3 products.py FILE` checks the results.
//   nvcc -O3 -arch=sm_90 -o products products.cu && ./products | tee products.json && python3 products.py products.json
#include <cstdio>
#include <cstdlib>
#include <vector>
typedef unsigned u32; typedef unsigned long long u64;
#define CHECK(call) do { cudaError_t e_ = (call); if (e_) { printf("{\"error\": \"%s\"}\n", cudaGetErrorString(e_)); exit(1); } } while (0)

// hi:lo += x * y + the carry flag, which it leaves: one instruction, IMAD.WIDE.U32.X.
#define MAD(first, lo, hi, x, y) asm volatile("mad" first ".lo.cc.u32 %0, %2, %3, %0; madc.hi.cc.u32 %1, %2, %3, %1;" : "+&r"(lo), "+&r"(hi) : "r"(x), "r"(y))
#define CARRY(to) asm volatile("addc.u32 %0, %0, 0;" : "+r"(to))

// (a) Eight chains a thread. KIND 0: 32-bit mads. 1: 64-bit sums (by MAD: ptxas makes mad.wide two instructions). 2: those
// with the carry of the one before. 3: as accel/shaders/limit.wgsl has them; nvcc adds a needless IADD3 to each.
template <int KIND> __global__ void limit(u64 *out, u64 *cycles, int rounds) {
    u32 at = blockIdx.x * blockDim.x + threadIdx.x, y = at | 1;
    u64 s[8]; u32 lo[8], hi[8], over = 0;
    for (int j = 0; j < 8; j++) { s[j] = lo[j] = hi[j] = at + j; }
    u64 start = clock64();
#pragma unroll 4
    for (int r = 0; r < rounds; r++) {
        if (KIND == 2) { MAD("", lo[0], hi[0], hi[7], y); }
#pragma unroll
        for (int j = 0; j < 8; j++) {
            if (KIND == 0) lo[j] = lo[j] * y + hi[j];
            if (KIND == 1) MAD("", lo[j], hi[j], hi[(j + 7) % 8], y);
            if (KIND == 3) s[j] += (u64)(u32)s[j] * y;
            if (KIND == 2 && j > 0) MAD("c", lo[j], hi[j], hi[j - 1], y);
        }
        if (KIND == 2) CARRY(over);
    }
    if (threadIdx.x == 0) cycles[blockIdx.x] = clock64() - start;
    u64 sum = over;
    for (int j = 0; j < 8; j++) sum += s[j] + lo[j] + ((u64)hi[j] << 32);
    out[at] = sum;
}

// e += x * y over every second limb of x, with the carry at `over`.
template <int L> __device__ __forceinline__ void row(u32 *e, const u32 *x, u32 y, u32 &over) {
    MAD("", e[0], e[1], x[0], y);
#pragma unroll
    for (int j = 2; j < L; j += 2) MAD("c", e[j], e[j + 1], x[j], y);
    CARRY(over);
}

// (b) t := (t + a * b + q * m) / 2^32, TEAM threads with L limbs each. Sums are in two rows whose products do not overlap: e from
// limb 0 on, o from limb 1 on, with what is above them in `eo` and `oo`; after the division they change places. On entry o is yet
// to be shifted by two limbs; above it comes x, out of its top and of the rank above.
template <int L, int TEAM> __device__ __forceinline__ void round(u32 *e, u32 *o, u32 &eo, u32 &oo, u64 &x, const u32 *a, const u32 *m, u32 b, u32 inverse) {
    int rank = threadIdx.x % TEAM;
    asm volatile("add.cc.u32 %0, %0, %1;" : "+r"(e[0]) : "r"(o[1]));
#pragma unroll
    for (int j = 0; j < L; j += 2) {
        o[j] = j + 2 < L ? o[j + 2] : (u32)x; o[j + 1] = j + 2 < L ? o[j + 3] : (u32)(x >> 32);
        MAD("c", o[j], o[j + 1], a[j + 1], b);
    }
    oo = 0; CARRY(oo);
    row<L>(e, a, b, eo);
    u32 q = __shfl_sync(~0u, e[0] * inverse, 0, TEAM);
    row<L>(o, m + 1, q, oo);
    row<L>(e, m, q, eo);
    u32 above = __shfl_down_sync(~0u, e[0], 1, TEAM);
    x = (u64)eo + (rank + 1 < TEAM ? above : 0);
}

// a := a^2 / 2^(32 L TEAM) mod m, `chain` times; below 2m for m below a quarter of the radix.
template <int L, int TEAM> __global__ void __launch_bounds__(128) squares(u32 *numbers, const u32 *modulus, u32 inverse, int chain) {
    __shared__ u32 factor[128 * L];
    u32 rank = threadIdx.x % TEAM, *mine = factor + (threadIdx.x - rank) * L;
    u32 a[L], m[L], e[L], o[L];
    numbers += ((u64)blockIdx.x * blockDim.x + threadIdx.x) * L;
    for (int j = 0; j < L; j++) { a[j] = numbers[j]; m[j] = modulus[rank * L + j]; }
    for (int k = 0; k < chain; k++) {
        __syncwarp();
        for (int j = 0; j < L; j++) { mine[rank * L + j] = a[j]; e[j] = o[j] = 0; }
        __syncwarp();
        u32 eo = 0, oo = 0; u64 x = 0;
#pragma unroll 1
        for (int i = 0; i < L * TEAM; i += 2) {
            round<L, TEAM>(e, o, eo, oo, x, a, m, mine[i], inverse);
            round<L, TEAM>(o, e, oo, eo, x, a, m, mine[i + 1], inverse);
        }
        // Both rows together, then what is above each thread's limbs goes up while there is something.
        u64 sum = 0;
        for (int j = 0; j < L; j++) {
            sum += (u64)e[j] + (j + 1 < L ? o[j + 1] : (u32)x);
            a[j] = (u32)sum; sum >>= 32;
        }
        u32 carry = (u32)sum + eo + (u32)(x >> 32);
        while (__any_sync(~0u, carry && rank + 1 < TEAM)) {
            u32 below = __shfl_up_sync(~0u, carry, 1, TEAM);
            sum = rank > 0 ? below : 0;
            for (int j = 0; j < L; j++) { sum += a[j]; a[j] = (u32)sum; sum >>= 32; }
            carry = (u32)sum;
        }
    }
    for (int j = 0; j < L; j++) numbers[j] = a[j];
}

// The best of three runs, in seconds, after one that does not count.
template <class F> double best(F run) {
    cudaEvent_t from, to; CHECK(cudaEventCreate(&from)); CHECK(cudaEventCreate(&to));
    float least = 1e30f, ms;
    for (int i = 0; i < 4; i++) {
        CHECK(cudaEventRecord(from)); run(); CHECK(cudaEventRecord(to)); CHECK(cudaEventSynchronize(to)); CHECK(cudaGetLastError());
        CHECK(cudaEventElapsedTime(&ms, from, to)); if (i && ms < least) least = ms;
    }
    return least / 1e3;
}

template <int KIND> void measure_limit(const char *name, int sms) {
    int per_sm, threads = 256, rounds = 1 << 15;
    CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_sm, limit<KIND>, threads, 0));
    int blocks = sms * per_sm; u64 *out, *cycles, took;
    CHECK(cudaMalloc(&out, 8ll * blocks * threads)); CHECK(cudaMalloc(&cycles, 8ll * blocks));
    double seconds = best([&] { limit<KIND><<<blocks, threads>>>(out, cycles, rounds); });
    CHECK(cudaMemcpy(&took, cycles, 8, cudaMemcpyDeviceToHost));
    double all = 8.0 * rounds * blocks * threads;
    printf("{\"limit\": \"%s\", \"per_second\": %.4g, \"per_sm_and_clock\": %.2f, \"mhz\": %.0f, \"threads_per_sm\": %d}\n", name, all / seconds, all / sms / took, took / seconds / 1e6, per_sm * threads);
    CHECK(cudaFree(out)); CHECK(cudaFree(cycles));
}

void print_number(const char *name, const u32 *x, int limbs) {
    printf(", \"%s\": \"", name); for (int j = limbs; j-- > 0;) printf("%08x", x[j]); printf("\"");
}

template <int L, int TEAM> void measure_squares(int chain) {
    const int limbs = L * TEAM, count = 1 << 17, which = 12345;
    std::vector<u32> m(limbs), host((size_t)count * limbs), first; u64 seed = 88172645463325252ull;
    auto next = [&] { seed ^= seed << 13; seed ^= seed >> 7; seed ^= seed << 17; return (u32)(seed >> 16); };
    for (u32 &w : m) w = next();
    m[0] |= 1; m[limbs - 1] = (m[limbs - 1] & 0x1fffffff) | 0x20000000; // two bits fewer than the name says: 4m is below the radix
    for (size_t i = 0; i < host.size(); i++) host[i] = i % limbs == limbs - 1u ? next() % 0x20000000 : next();
    first.assign(host.begin() + which * limbs, host.begin() + (which + 1) * limbs);
    u32 inverse = 1; for (int i = 0; i < 5; i++) inverse *= 2 - m[0] * inverse;
    u32 *x, *modulus; size_t bytes = 4 * host.size(); cudaFuncAttributes at; int per_sm;
    CHECK(cudaMalloc(&x, bytes)); CHECK(cudaMalloc(&modulus, 4 * limbs));
    CHECK(cudaMemcpy(modulus, m.data(), 4 * limbs, cudaMemcpyHostToDevice));
    auto run = [&] { squares<L, TEAM><<<count * TEAM / 128, 128>>>(x, modulus, 0u - inverse, chain); };
    CHECK(cudaMemcpy(x, host.data(), bytes, cudaMemcpyHostToDevice)); run();
    CHECK(cudaMemcpy(host.data(), x, bytes, cudaMemcpyDeviceToHost));
    double seconds = best(run), rate = (double)count * chain / seconds;
    CHECK(cudaFuncGetAttributes(&at, squares<L, TEAM>)); CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_sm, squares<L, TEAM>, 128, 0));
    printf("{\"mont\": %d, \"team\": %d, \"limbs\": %d, \"chain\": %d, \"products_per_second\": %.4g, \"mads_per_second\": %.4g, \"registers\": %d, \"local_bytes\": %zu, \"threads_per_sm\": %d",
        32 * limbs, TEAM, L, chain, rate, rate * 2 * limbs * limbs, at.numRegs, at.localSizeBytes, per_sm * 128);
    print_number("m", m.data(), limbs); print_number("x", first.data(), limbs); print_number("result", host.data() + (size_t)which * limbs, limbs);
    printf("}\n"); fflush(stdout);
    CHECK(cudaFree(x)); CHECK(cudaFree(modulus));
}

int main() {
    cudaDeviceProp p; CHECK(cudaGetDeviceProperties(&p, 0));
    printf("{\"device\": \"%s\", \"multiprocessors\": %d}\n", p.name, p.multiProcessorCount);
    measure_limit<0>("32-bit mads", p.multiProcessorCount);
    measure_limit<1>("64-bit sums", p.multiProcessorCount);
    measure_limit<2>("64-bit sums with carries", p.multiProcessorCount);
    measure_limit<3>("64-bit sums as in limit.wgsl", p.multiProcessorCount);
    measure_squares<8, 8>(1000); measure_squares<16, 4>(1000); measure_squares<32, 2>(1000);
    measure_squares<16, 8>(1000); measure_squares<32, 4>(1000);
}
