//! Items found by their numbers, which ascend.

use std::collections::VecDeque;

/// Items numbered one after the other, of which the older ones go first, mostly.
#[derive(Debug)]
pub(super) struct Numbered<T> {
    /// The number of the first slot.
    first: u64,
    /// The first one is never empty.
    slots: VecDeque<Option<T>>,
}

impl<T> Numbered<T> {
    pub(super) fn new(first: u64) -> Self {
        Self { first, slots: VecDeque::new() }
    }

    /// Returns the number of the item that is pushed next.
    pub(super) fn next(&self) -> u64 {
        self.first + self.slots.len() as u64
    }

    /// Returns how many numbers there are from the oldest item's to the next.
    pub(super) fn span(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Appends an item, and returns its number.
    pub(super) fn push(&mut self, item: T) -> u64 {
        self.slots.push_back(Some(item));
        self.next() - 1
    }

    fn at(&self, number: u64) -> Option<usize> {
        usize::try_from(number.checked_sub(self.first)?).ok()
    }

    pub(super) fn get(&self, number: u64) -> Option<&T> {
        self.slots.get(self.at(number)?)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, number: u64) -> Option<&mut T> {
        let at = self.at(number)?;
        self.slots.get_mut(at)?.as_mut()
    }

    pub(super) fn remove(&mut self, number: u64) -> Option<T> {
        let at = self.at(number)?;
        let item = self.slots.get_mut(at)?.take()?;
        while let Some(None) = self.slots.front() {
            self.slots.pop_front();
            self.first += 1;
        }
        Some(item)
    }

    /// Iterates over items and their numbers, oldest first.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, &T)> {
        (self.first..).zip(&self.slots).filter_map(|(number, slot)| Some((number, slot.as_ref()?)))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Compares it with a tree.
        #[test]
        fn it_has_what_was_pushed_and_not_removed(steps in prop::collection::vec((prop::bool::ANY, 0u64..40), 1..200)) {
            let (mut items, mut tree) = (Numbered::new(9), BTreeMap::new());
            for (pushes, back) in steps {
                if pushes {
                    let number = items.push(back);
                    prop_assert_eq!(tree.insert(number, back), None);
                } else {
                    let number = items.next().saturating_sub(back);
                    prop_assert_eq!(items.remove(number), tree.remove(&number));
                }
                let oldest = tree.first_key_value().map_or(items.next(), |(number, _)| *number);
                prop_assert_eq!(items.span() as u64, items.next() - oldest);
                prop_assert_eq!(items.is_empty(), tree.is_empty());
                prop_assert!(items.iter().eq(tree.iter().map(|(number, item)| (*number, item))));
                prop_assert_eq!(items.get(oldest), tree.get(&oldest));
            }
        }
    }
}
