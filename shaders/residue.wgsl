// Library: residues that take many products, a number each, in Montgomery form. Its twin is pair.wgsl; a kernel
// with DIGITS numbers a residue is written over either.

fn set_factor(y: Residue) {
    set_operand(y[0]);
}

// x := x · factor / R' mod m; a square costs the same.
fn multiply(x: ptr<function, Residue>, is_square: bool) {
    var product = (*x)[0];
    mont(&product);
    (*x)[0] = product;
}

// The least of a residue below 2m.
fn finish(x: ptr<function, Residue>) {
    var least = (*x)[0];
    _ = reduce(&least);
    (*x)[0] = least;
}
