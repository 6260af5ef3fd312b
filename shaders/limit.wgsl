// What a device can multiply at most: `words` rounds of mads in every thread, in chains that wait for nobody else's
// results, of numbers that nobody knows beforehand. The sum of the chains is written, so that none is left out.

const CHAINS: u32 = 8u;

@compute @workgroup_size(GROUP)
fn main(@builtin(local_invocation_index) index: u32, @builtin(workgroup_id) group: vec3<u32>,
        @builtin(num_workgroups) groups: vec3<u32>) {
    let at = thread(index, group, groups);
    if at < params.count {
        var chains: array<Wide, CHAINS>;
        for (var j = 0u; j < CHAINS; j++) {
            chains[j] = wide(at + j);
        }
        for (var round = 0u; round < params.words; round++) {
            for (var j = 0u; j < CHAINS; j++) {
                chains[j] = mad(chains[j], low(chains[j]), at);
            }
        }
        var sum = wide(0u);
        for (var j = 0u; j < CHAINS; j++) {
            sum = add(sum, chains[j]);
        }
        out[at] = unpack(sum);
    }
}
