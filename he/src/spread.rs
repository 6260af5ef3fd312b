//! Work on as many cores as there are.

use rayon::prelude::*;

/// Returns `work` over all items, in order, each in room that is kept from one to the next. Where
/// there is one thread or one item it is done in place: on a busy machine it takes longer to wake
/// another thread than to open a polynomial.
pub(crate) fn spread<T: Send, R, O: Send>(
    items: Vec<T>,
    room: impl Fn() -> R + Sync + Send,
    work: impl Fn(&mut R, T) -> O + Sync + Send,
) -> Vec<O> {
    if rayon::current_num_threads() == 1 || items.len() == 1 {
        let mut room = room();
        return items.into_iter().map(|item| work(&mut room, item)).collect();
    }
    items.into_par_iter().map_init(room, work).collect()
}
