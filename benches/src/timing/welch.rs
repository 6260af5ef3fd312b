//! Welch's t: the difference of two means in units of its standard error.
//!
//! # Source
//! B. L. Welch, "The generalization of 'Student's' problem when several different population
//! variances are involved", Biometrika 34, 1947; B. P. Welford, "Note on a method for calculating
//! corrected sums of squares and products", Technometrics 4, 1962.

/// Count, mean and variance of numbers that are seen once, by Welford's recurrence.
#[derive(Clone, Copy, Debug, Default)]
pub struct Moments {
    count: usize,
    mean: f64,
    /// The sum of squared distances from the mean.
    squares: f64,
}

impl Moments {
    /// Takes one more number.
    pub fn add(&mut self, x: f64) {
        self.count += 1;
        let from_old = x - self.mean;
        self.mean += from_old / self.count as f64;
        self.squares += from_old * (x - self.mean);
    }

    /// Returns the count of numbers that were added.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }

    /// Returns their mean; 0 of none.
    #[must_use]
    pub fn mean(&self) -> f64 {
        self.mean
    }

    /// Returns the moments of the same numbers, each larger by `offset`.
    #[must_use]
    pub fn shifted(self, offset: f64) -> Self {
        Self { mean: self.mean + offset, ..self }
    }

    /// Returns the square of the mean's standard error: the unbiased variance over the count. Infinite for
    /// fewer than two numbers, which say nothing.
    fn squared_error(&self) -> f64 {
        match self.count {
            0 | 1 => f64::INFINITY,
            n => self.squares / (n - 1) as f64 / n as f64,
        }
    }
}

impl FromIterator<f64> for Moments {
    fn from_iter<I: IntoIterator<Item = f64>>(numbers: I) -> Self {
        let mut moments = Self::default();
        numbers.into_iter().for_each(|x| moments.add(x));
        moments
    }
}

/// The difference of two means.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Difference {
    /// `mean(a) − mean(b)`, in the unit of the numbers.
    pub means: f64,
    /// The standard error of that: `√(var(a)/n(a) + var(b)/n(b))`.
    pub error: f64,
}

impl Difference {
    /// Returns the difference of `a` from `b`.
    #[must_use]
    pub fn between(a: &Moments, b: &Moments) -> Self {
        let error = (a.squared_error() + b.squared_error()).sqrt();
        Self { means: a.mean - b.mean, error }
    }

    /// Returns `means / error`. Zero for equal means, even where all numbers are equal.
    #[must_use]
    pub fn t(&self) -> f64 {
        if self.means == 0.0 { 0.0 } else { self.means / self.error }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Miles per gallon of 19 cars with automatic gears and 13 with manual ones: the data set
    /// `mtcars` of R. Henderson and Velleman, "Building multiple regression models interactively",
    /// Biometrics 37, 1981.
    const AUTOMATIC: [f64; 19] = [
        21.4, 18.7, 18.1, 14.3, 24.4, 22.8, 19.2, 17.8, 16.4, 17.3, 15.2, 10.4, 10.4, 14.7, 21.5,
        15.5, 15.2, 13.3, 19.2,
    ];
    const MANUAL: [f64; 13] =
        [21.0, 21.0, 22.8, 32.4, 30.4, 33.9, 27.3, 26.0, 30.4, 15.8, 19.7, 15.0, 21.4];
    /// Hours of sleep that ten patients gained from each of two drugs. Student, "The probable error
    /// of a mean", Biometrika 6, 1908: the data set `sleep` of R.
    const SLEEP: [[f64; 10]; 2] = [
        [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0],
        [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4],
    ];

    const CARS_T: f64 = -3.767_123_145_144_925;
    const SLEEP_T: f64 = -1.860_813_467_486_853;

    fn difference(a: &[f64], b: &[f64]) -> Difference {
        let [a, b] = [a, b].map(|x| x.iter().copied().collect::<Moments>());
        Difference::between(&a, &b)
    }

    /// R's `t.test(mpg ~ am, data = mtcars)` prints t = -3.7671 and `t.test(extra ~ group, data =
    /// sleep)` prints t = -1.8608; the further digits are from exact fractions in Python.
    #[test]
    fn t_is_that_of_published_data() {
        let cars = difference(&AUTOMATIC, &MANUAL);
        assert!((cars.t() - CARS_T).abs() < 1e-12, "{}", cars.t());
        assert!((cars.means - (17.147_368_421_052_63 - 24.392_307_692_307_69)).abs() < 1e-12);
        let [first, second] = SLEEP;
        let sleep = difference(&first, &second);
        assert!((sleep.t() - SLEEP_T).abs() < 1e-12, "{}", sleep.t());
        assert!((difference(&second, &first).t() + SLEEP_T).abs() < 1e-12);
    }

    /// A large common offset costs no digits that matter: times are like that.
    #[test]
    fn an_offset_changes_nothing() {
        let shifted = |x: &[f64]| x.iter().map(|v| v + 1e7).collect::<Vec<_>>();
        let cars = difference(&shifted(&AUTOMATIC), &shifted(&MANUAL));
        assert!((cars.t() - CARS_T).abs() < 1e-6, "{}", cars.t());
    }

    #[test]
    fn too_little_says_nothing() {
        assert_eq!(difference(&[1.0], &[2.0, 3.0]).t(), 0.0);
        assert_eq!(difference(&[], &[]).t(), 0.0);
        assert_eq!(difference(&[2.0, 2.0], &[2.0, 2.0]).t(), 0.0);
        assert_eq!(difference(&[3.0, 3.0], &[2.0, 2.0]).t(), f64::INFINITY);
    }
}
