//! Values that an engine derives from long-lived constants.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex, PoisonError, Weak},
};

/// A constant, and what was derived from it.
type Entry<K, V> = (Weak<K>, Arc<V>);

/// Values derived from constants, found by the constant's identity.
pub(crate) struct Derived<K, V>(Mutex<Vec<Entry<K, V>>>);

impl<K, V> Default for Derived<K, V> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K, V> Derived<K, V> {
    /// Returns the value for `key`. It is derived without the lock, since deriving may use every
    /// core and so run into a search of its own; of two that are derived at once the first stays.
    pub(crate) fn get(&self, key: &Arc<K>, derive: impl FnOnce(&K) -> V) -> Arc<V> {
        match self.try_get(key, |key| Ok::<V, Infallible>(derive(key))) {
            Ok(value) => value,
        }
    }

    /// Returns the value for `key` where deriving may fail: then nothing is kept.
    pub(crate) fn try_get<E>(
        &self,
        key: &Arc<K>,
        derive: impl FnOnce(&K) -> Result<V, E>,
    ) -> Result<Arc<V>, E> {
        if let Some(value) = self.find(key) {
            return Ok(value);
        }
        let value = Arc::new(derive(key)?);
        let entry = (Arc::downgrade(key), value.clone());
        let mut list = self.list();
        Ok(match list.iter().find(|(weak, _)| weak.as_ptr() == Arc::as_ptr(key)) {
            Some((_, first)) => first.clone(),
            None => {
                list.push(entry);
                value
            }
        })
    }

    fn find(&self, key: &Arc<K>) -> Option<Arc<V>> {
        let list = self.list();
        list.iter().find(|(weak, _)| weak.as_ptr() == Arc::as_ptr(key)).map(|(_, v)| v.clone())
    }

    /// Lets go of the values of constants that are gone. Tables of a secret are wiped then, which
    /// takes time: the lock does not wait for it.
    pub(crate) fn sweep(&self) {
        let dead: Vec<_> =
            self.list().extract_if(.., |(weak, _)| weak.strong_count() == 0).collect();
        drop(dead);
    }

    fn list(&self) -> std::sync::MutexGuard<'_, Vec<Entry<K, V>>> {
        // Nothing that can panic happens under the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
