//! Mean, deviation, coefficient of variation, and the classes that follow from them.

use serde::Serialize;

/// How far a broker's score lies from the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LoadClass {
    /// Within one deviation, or low but above half the mean.
    Normal,
    /// More than one deviation above the mean.
    Overloaded,
    /// More than one deviation below the mean, and below half of it.
    Underloaded,
}

/// What the coefficient of variation says of the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum BalanceStatus {
    /// Below 20 %.
    WellBalanced,
    /// Below 30 %.
    Acceptable,
    /// Below 40 %.
    Imbalanced,
    /// 40 % and more.
    SeverelyImbalanced,
}

/// Mean and population deviation of some scores.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spread {
    /// Arithmetic mean; 0 of nothing.
    pub mean: f64,
    /// Population standard deviation.
    pub std_dev: f64,
}

impl Spread {
    /// Of these scores.
    pub fn of(scores: &[f64]) -> Self {
        if scores.is_empty() {
            return Self { mean: 0.0, std_dev: 0.0 };
        }
        let n = scores.len() as f64;
        let mean = scores.iter().sum::<f64>() / n;
        let variance = scores.iter().map(|s| (s - mean) * (s - mean)).sum::<f64>() / n;
        Self { mean, std_dev: variance.sqrt() }
    }

    /// Coefficient of variation in percent; 0 when the mean is not above 0.
    pub fn cv_percent(&self) -> f64 {
        if self.mean > 0.0 { self.std_dev / self.mean * 100.0 } else { 0.0 }
    }

    /// The class of a score among those that this spread was taken of.
    pub fn class(&self, score: f64) -> LoadClass {
        if score > self.mean + self.std_dev {
            LoadClass::Overloaded
        } else if score < self.mean - self.std_dev && score < self.mean * 0.5 {
            LoadClass::Underloaded
        } else {
            LoadClass::Normal
        }
    }

    /// The status of the cluster.
    pub fn status(&self) -> BalanceStatus {
        match self.cv_percent() {
            cv if cv < 20.0 => BalanceStatus::WellBalanced,
            cv if cv < 30.0 => BalanceStatus::Acceptable,
            cv if cv < 40.0 => BalanceStatus::Imbalanced,
            _ => BalanceStatus::SeverelyImbalanced,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn classes(scores: &[f64]) -> (Vec<usize>, Vec<usize>) {
        let spread = Spread::of(scores);
        let of = |class| {
            let same = |i: &usize| spread.class(scores[*i]) == class;
            (0..scores.len()).filter(same).map(|i| i + 1).collect()
        };
        (of(LoadClass::Overloaded), of(LoadClass::Underloaded))
    }

    #[test]
    fn worked_numbers() {
        type Row = (&'static [f64], f64, f64, f64, &'static [usize], &'static [usize]);
        let rows: [Row; 11] = [
            (&[5.0, 10.0, 20.0], 11.667, 6.236, 53.45, &[3], &[1]),
            (&[45.0, 30.0, 25.0], 33.333, 8.498, 25.50, &[1], &[]),
            (&[10.0, 10.0, 10.0], 10.0, 0.0, 0.0, &[], &[]),
            (&[0.0, 10.0], 5.0, 5.0, 100.0, &[], &[]),
            (&[10.0, 20.0], 15.0, 5.0, 33.33, &[], &[]),
            (&[1.0, 1.0, 10.0], 4.0, 4.243, 106.07, &[3], &[]),
            (&[21.0, 21.0, 19.0], 20.333, 0.943, 4.64, &[], &[]),
            (&[9.0, 10.0, 11.0], 10.0, 0.816, 8.16, &[3], &[]),
            (&[2.0, 5.0, 5.0], 4.0, 1.414, 35.36, &[], &[]),
            (&[3.0, 10.0, 11.0, 12.0], 9.0, 3.536, 39.28, &[], &[1]),
            (&[0.0, 0.0, 0.0, 30.0], 7.5, 12.990, 173.21, &[4], &[]),
        ];
        for (scores, mean, std_dev, cv, over, under) in rows {
            let spread = Spread::of(scores);
            assert!((spread.mean - mean).abs() < 0.001, "{scores:?}");
            assert!((spread.std_dev - std_dev).abs() < 0.001, "{scores:?}");
            assert!((spread.cv_percent() - cv).abs() < 0.01, "{scores:?}");
            assert_eq!(classes(scores), (over.to_vec(), under.to_vec()), "{scores:?}");
        }
    }

    #[test]
    fn one_broker_and_none_are_level() {
        assert_eq!(Spread::of(&[7.0]).cv_percent(), 0.0);
        assert_eq!(Spread::of(&[]).cv_percent(), 0.0);
        assert_eq!(Spread::of(&[]).status(), BalanceStatus::WellBalanced);
    }

    #[test]
    fn the_bounds_of_a_status_belong_to_the_worse_one() {
        let status = |a, b| Spread::of(&[a, b]).status();
        assert_eq!(status(85.0, 115.0), BalanceStatus::WellBalanced);
        assert_eq!(status(80.0, 120.0), BalanceStatus::Acceptable);
        assert_eq!(status(70.0, 130.0), BalanceStatus::Imbalanced);
        assert_eq!(status(60.0, 140.0), BalanceStatus::SeverelyImbalanced);
    }
}
