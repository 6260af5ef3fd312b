//! `ciphergram show noise`: what noise that clients add together protects.

use ciphergram_he::{
    dp::{Epsilon, Literal, Mechanism, Noise, Release},
    error::NoiseError,
    job::usual_min_clients,
};
use serde_json::{Value, json};

use crate::{args, failure::Failure, report::report};

pub(crate) fn run(args: &args::NoiseArgs) -> Result<(), Failure> {
    let protection = Protection::of(args).map_err(|e| Failure::Misuse(e.to_string()))?;
    report(args.report.json, &protection.json(args), &protection.lines(args))
}

/// The noise and its bounds.
struct Protection {
    noise: Noise,
    mechanism: Mechanism,
    epsilon: Epsilon,
    /// Some numbers of colluders, the part of the variance that each leaves, and the bound against them.
    colluders: Vec<(u32, f64, Option<Epsilon>)>,
}

impl Protection {
    fn of(args: &args::NoiseArgs) -> Result<Self, NoiseError> {
        let min_clients = args.min_clients.unwrap_or_else(|| usual_min_clients(args.clients));
        let (sigma, clip, clients) = (args.sigma, args.clip, args.clients);
        let noise = Noise::new(Literal { sigma, clip, clients, min_clients })?;
        let half_steps = (1 << (args.bits - 1)) - 1;
        let range = args.range.unwrap_or(noise.range());
        let mechanism = Mechanism::new(noise, range, half_steps, args.values)?;
        let of =
            |colluders| mechanism.epsilon(Release { rounds: args.rounds, colluders }, args.delta);
        let doublings = (0..).map(|i| 1 << i).take_while(|&colluders| colluders < min_clients);
        let colluders = doublings.map(|colluders| {
            let left = f64::from(min_clients - colluders) / f64::from(min_clients);
            (colluders, left, of(colluders).ok())
        });
        let colluders = colluders.collect();
        let epsilon = of(0)?;
        Ok(Self { noise, mechanism, epsilon, colluders })
    }

    /// Returns the largest L2 norm of a rounded update, as the values are.
    fn norm(&self) -> f64 {
        (self.mechanism.squared_norm() as f64).sqrt() * self.mechanism.step()
    }

    fn json(&self, args: &args::NoiseArgs) -> Value {
        let Self { noise, mechanism, epsilon, colluders } = self;
        let colluders = colluders.iter().map(|(colluders, left, found)| {
            let epsilon = found.map(|found| found.epsilon);
            json!({"colluders": colluders, "variance_left": left, "epsilon": epsilon})
        });
        json!({
            "noise": noise, "rounds": args.rounds, "delta": args.delta,
            "bits": args.bits, "values": args.values,
            "range": mechanism.range(), "step": mechanism.step(), "norm": self.norm(),
            "share_deviation": noise.share_deviation(),
            "share_variance_steps": mechanism.share_variance(),
            "squared_norm_steps": mechanism.squared_norm(),
            "epsilon": epsilon.epsilon, "order": epsilon.order, "rho": epsilon.rho,
            "colluders": colluders.collect::<Value>(),
        })
    }

    fn lines(&self, args: &args::NoiseArgs) -> Vec<String> {
        let Self { noise, mechanism, epsilon, colluders } = self;
        let Literal { sigma, clip, min_clients, .. } = noise.literal();
        let (share, step) = (noise.share_deviation(), mechanism.step());
        let mut lines = vec![
            format!(
                "noise of a sum of {min_clients} clients: standard deviation {sigma} x {clip} = {}; \
                 of more clients, more",
                sigma * clip
            ),
            format!(
                "  a client adds {share:.6}, {:.1} steps, within a range of {:.6}",
                share / step,
                mechanism.range()
            ),
            format!(
                "  its update of {} values has an L2 norm of at most {:.6} when it is rounded",
                args.values,
                self.norm()
            ),
            format!(
                "{} at delta {}, rounds {} (zCDP, order {:.1})",
                words(Some(epsilon)),
                args.delta,
                args.rounds,
                epsilon.order
            ),
        ];
        lines.extend(colluders.iter().map(|(colluders, left, found)| {
            let found = words(found.as_ref());
            format!(
                "  against {colluders} colluding, who leave {:.1} % of the variance: {found}",
                100.0 * left
            )
        }));
        lines.push(
            "hidden is whether a client's update is what it is or zeros, not who takes part".into(),
        );
        lines
    }
}

fn words(found: Option<&Epsilon>) -> String {
    found.map_or("no epsilon".into(), |found| format!("epsilon {:.3}", found.epsilon))
}
