//! first version

fn add_row(acc: &mut [u64], a: u64, b: &[u64]) {
    let mut carry = 0u64;
    for (i, x) in acc.iter_mut().enumerate() {
        let s = u128::from(*x)
            + u128::from(carry)
            + u128::from(a) * u128::from(b.get(i).copied().unwrap_or(0));
        *x = s as u64;
        carry = (s >> 64) as u64;
    }
}

pub(super) fn mul_redc<const P: usize>(
    m: &[u64],
    n0: u64,
    acc: &mut [u64],
    pairs: [(&[u64], &[u64]); P],
) {
    let h = m.len();
    for i in 0..h {
        for p in 0..P {
            add_row(&mut acc[i..], pairs[p].0[i], pairs[p].1);
        }
        let q = acc[i].wrapping_mul(n0);
        add_row(&mut acc[i..], q, m);
        acc[i] = q;
    }
}

pub(super) fn square(acc: &mut [u64], a: &[u64]) {
    mul_wide(acc, a, a);
}

pub(super) fn mul_wide(acc: &mut [u64], a: &[u64], b: &[u64]) {
    acc.fill(0);
    for (i, &b) in b.iter().enumerate() {
        add_row(&mut acc[i..], b, a);
    }
}
