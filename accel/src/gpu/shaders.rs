//! The text of shaders, put together from files, and the layout that all share.
//!
//! A kernel is its own file after a prelude (how 64 bits are multiplied), after the sizes that are
//! in types, after the library of its family. See `shaders/README.md`.

/// How an adapter multiplies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Prelude {
    /// In integers of 64 bits.
    Native,
    /// In pieces of 16 bits.
    Split,
}

impl Prelude {
    fn text(self) -> &'static str {
        match self {
            Self::Native => include_str!("../../shaders/wide_native.wgsl"),
            Self::Split => include_str!("../../shaders/wide_split.wgsl"),
        }
    }
}

macro_rules! kernels {
    ($($(#[$doc:meta])* $variant:ident($family:ident): $($kernel:ident = $file:literal after $libraries:expr),*;)*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
            pub(crate) enum $family {
                $($kernel),*
            }

            impl From<$family> for Kernel {
                fn from(kernel: $family) -> Self {
                    Self::$variant(kernel)
                }
            }
        )*

        /// The kernels: a file each, or a file over one of two libraries.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub(crate) enum Kernel {
            $($variant($family)),*
        }

        impl Kernel {
            #[cfg(test)]
            pub(super) const ALL: &[Self] = &[$($(Self::$variant($family::$kernel)),*),*];

            /// Returns the name of its file.
            pub(crate) fn name(self) -> &'static str {
                match self {
                    $($(Self::$variant($family::$kernel) => $file,)*)*
                }
            }

            fn body(self) -> &'static str {
                match self {
                    $($(Self::$variant($family::$kernel) => {
                        include_str!(concat!("../../shaders/", $file, ".wgsl"))
                    })*)*
                }
            }

            fn libraries(self) -> &'static [Library] {
                match self {
                    $($(Self::$variant($family::$kernel) => $libraries,)*)*
                }
            }
        }
    };
}

kernels! {
    /// Kernels over big numbers.
    Numbers(OverNumbers):
    MontMul = "mont_mul" after &[Library::Montgomery],
    Product = "product" after &[Library::Montgomery],
    Table = "table" after &[Library::Montgomery, Library::Residue],
    PairTable = "table" after &[Library::Montgomery, Library::Pair],
    Pow = "pow" after &[Library::Montgomery, Library::Residue],
    PairPow = "pow" after &[Library::Montgomery, Library::Pair],
    Reduce = "reduce" after &[Library::Montgomery],
    Divide = "divide" after &[Library::Montgomery],
    Linear = "linear" after &[Library::Montgomery],
    ResiduesSum = "residues_sum" after &[Library::Montgomery],
    PairMul = "pair_mul" after &[Library::Montgomery, Library::Pair],
    Invert = "invert" after &[Library::Montgomery];
    /// Kernels over words.
    Words(OverWords):
    Choose = "choose" after &[],
    UnitPair = "unit_pair" after &[];
    /// Kernels over residues of the primes of a ring.
    Rings(OverRings):
    PolyAdd = "poly_add" after &[Library::Ring],
    PolySub = "poly_sub" after &[Library::Ring],
    PolyMul = "poly_mul" after &[Library::Ring],
    Scale = "scale" after &[Library::Ring],
    Limbs = "limbs" after &[Library::Ring],
    Lift = "lift" after &[Library::Ring],
    Compose = "compose" after &[Library::Ring, Library::Digits],
    BaseExtend = "base_extend" after &[Library::Ring, Library::Digits],
    Automorphism = "automorphism" after &[Library::Ring],
    Pack = "pack" after &[Library::Ring, Library::Lanes, Library::Beats],
    Unpack = "unpack" after &[Library::Ring, Library::Lanes],
    AddBeats = "add_beats" after &[Library::Ring, Library::Lanes, Library::Beats],
    Noise = "noise" after &[Library::Ring, Library::ChaCha, Library::Small],
    Ternary = "ternary" after &[Library::Ring, Library::ChaCha, Library::Small],
    Uniform = "uniform" after &[Library::Ring, Library::Lanes, Library::ChaCha],
    Ntt = "ntt" after &[Library::Ring, Library::Tile],
    Intt = "intt" after &[Library::Ring, Library::Tile],
    Limit = "limit" after &[Library::Ring];
}

/// The text before kernels.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Library {
    /// Teams of threads over big numbers.
    Montgomery,
    /// Big residues that take many products, as numbers.
    Residue,
    /// The same modulo a square, as two digits.
    Pair,
    /// Residues of the primes of a ring.
    Ring,
    /// Residues to digits in mixed radix.
    Digits,
    /// Lanes of beats.
    Lanes,
    /// Beats as results.
    Beats,
    /// Blocks of a stream.
    ChaCha,
    /// Polynomials with small coefficients.
    Small,
    /// A part of a transform.
    Tile,
}

impl Library {
    fn text(self) -> &'static str {
        match self {
            Self::Montgomery => include_str!("../../shaders/montgomery.wgsl"),
            Self::Residue => include_str!("../../shaders/residue.wgsl"),
            Self::Pair => include_str!("../../shaders/pair.wgsl"),
            Self::Ring => include_str!("../../shaders/ring.wgsl"),
            Self::Digits => include_str!("../../shaders/digits.wgsl"),
            Self::Lanes => include_str!("../../shaders/lanes.wgsl"),
            Self::Beats => include_str!("../../shaders/beats.wgsl"),
            Self::ChaCha => include_str!("../../shaders/chacha.wgsl"),
            Self::Small => include_str!("../../shaders/small.wgsl"),
            Self::Tile => include_str!("../../shaders/tile.wgsl"),
        }
    }
}

impl Kernel {
    /// Returns the whole text. `limbs` is of a thread, for kernels over big numbers.
    pub(crate) fn text(self, prelude: Prelude, limbs: u32) -> String {
        let libraries = self.libraries();
        let mut text = String::new();
        if !libraries.is_empty() {
            text.push_str(prelude.text());
        }
        if self.has_teams() {
            let digits = self.digits();
            text.push_str(&format!(
                "\nconst LIMBS: u32 = {limbs}u;\nconst DIGITS: u32 = {digits}u;\n"
            ));
        }
        for part in libraries.iter().map(|library| library.text()).chain([self.body()]) {
            text.push('\n');
            text.push_str(part);
        }
        text
    }

    /// Returns whether the kernel is over big numbers and has the override `TEAM`.
    pub(crate) fn has_teams(self) -> bool {
        matches!(self, Self::Numbers(_))
    }

    /// Returns the numbers of a residue, of kernels over big numbers.
    pub(crate) fn digits(self) -> u32 {
        1 + u32::from(self.libraries().contains(&Library::Pair))
    }

    /// Returns the threads of a workgroup.
    pub(crate) fn threads(self) -> u32 {
        match self {
            Self::Rings(OverRings::Ntt | OverRings::Intt) => 128,
            Self::Numbers(_) => GROUP,
            Self::Words(_) | Self::Rings(_) => WORDS_GROUP,
        }
    }
}

impl OverRings {
    /// Returns the units of its count that a workgroup takes.
    pub(crate) fn group(self) -> u32 {
        match self {
            // A workgroup for each tile, for each item.
            Self::Ntt | Self::Intt => 1,
            _ => WORDS_GROUP,
        }
    }
}

/// Threads of a workgroup over big numbers.
pub(crate) const GROUP: u32 = 32;
/// Threads of a workgroup over words.
pub(crate) const WORDS_GROUP: u32 = 64;
/// The most rounds of loops of one dispatch. So that no driver takes it for one that hangs: some
/// give up after seconds; llvmpipe leaves its loops, without a word, after 65,535 rounds of all
/// together.
pub(crate) const MAX_ROUNDS: u32 = 1 << 15;
/// Bits of a limb.
pub(crate) const LIMB_BITS: u32 = 29;
/// Words before the first number of the constants.
pub(crate) const CONSTANTS_HEAD: usize = 8;
/// Bytes of the parameters of any kernel.
pub(crate) const PARAMS_BYTES: usize = 80;

/// How a number is spread over threads: the threads of a team, and the limbs of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Shape {
    pub(crate) team: u32,
    pub(crate) limbs: u32,
}

impl Shape {
    /// Limbs of a thread that there are kernels for: enough for sixteen products a word of traffic,
    /// few enough for the registers of a thread and for the columns of pairs; an even number, as
    /// kernels take two of a factor at once. Sizes of 3072 bits and of powers of two fit closely.
    pub(crate) const LIMBS: [u32; 2] = [14, 18];

    /// Returns the least that holds numbers of `words` words of 64 bits and leaves R' ≥ 4m.
    pub(crate) fn of_words(words: usize) -> Self {
        Self::with_room(words, 2)
    }

    /// Returns the least that holds numbers of `words` words of 64 bits and `bits` bits more.
    pub(crate) fn with_room(words: usize, bits: u32) -> Self {
        let total = (64 * words as u32 + bits).div_ceil(LIMB_BITS);
        let mut team = 1;
        loop {
            if let Some(limbs) = Self::LIMBS.into_iter().find(|limbs| team * limbs >= total) {
                return Self { team, limbs };
            }
            team *= 2;
        }
    }

    /// Returns the limbs of a number.
    pub(crate) fn total(self) -> u32 {
        self.team * self.limbs
    }

    /// Returns the words of a number that lies as threads take it.
    pub(crate) fn words(self) -> u32 {
        4 * self.team * self.limbs.div_ceil(4)
    }

    /// Returns the place of limb `index` in it: see `place` in `montgomery.wgsl`.
    pub(crate) fn place(self, index: u32) -> u32 {
        let (rank, j) = (index / self.limbs, index % self.limbs);
        4 * (j / 4 * self.team + rank) + j % 4
    }

    /// log2 of R'.
    pub(crate) fn radix_bits(self) -> u32 {
        LIMB_BITS * self.total()
    }

    /// log2 of R'', the radix of pairs that take many products: see `pair.wgsl`.
    pub(crate) fn pair_radix_bits(self) -> u32 {
        self.radix_bits() + 2 * LIMB_BITS
    }
}

/// Declares the parameters of kernels: words of 32 bits, in the order in which the kernels declare them.
macro_rules! params {
    ($($(#[$doc:meta])* $name:ident: $($field:ident)*;)*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Default)]
            pub(crate) struct $name {
                $(pub(crate) $field: u32),*
            }

            impl $name {
                #[cfg(test)]
                const FIELDS: &[&str] = &[$(stringify!($field)),*];

                /// Returns them in order.
                pub(crate) fn as_words(&self) -> Vec<u32> {
                    vec![$(self.$field),*]
                }
            }
        )*
    };
}

params! {
    /// The parameters of kernels over big numbers, as `montgomery.wgsl` declares them.
    Params: count a_words a_stride a_start b_words b_stride b_start out_words out_stride out_start
        shift rows windows width row_bits flag from_round to_round;
    /// The parameters of kernels over words, as `choose.wgsl` and `unit_pair.wgsl` declare them.
    WordParams: words item_words a_stride b_stride c_stride;
    /// The parameters of kernels over rings, as `ring.wgsl` declares them.
    RingParams: count log_degree limbs a_stride b_stride first_stage stages log_columns beats words
        first_seed;
}

#[cfg(test)]
mod tests {
    use wgpu::naga;

    use super::*;

    fn parsed(kernel: Kernel, prelude: Prelude, limbs: u32) -> naga::Module {
        let text = kernel.text(prelude, limbs);
        match naga::front::wgsl::parse_str(&text) {
            Ok(module) => module,
            Err(why) => panic!("{} over {prelude:?}: {}", kernel.name(), why.emit_to_string(&text)),
        }
    }

    /// Every kernel over both preludes and every shape, with no adapter. What has no 64-bit
    /// integers must not need them.
    #[test]
    fn every_permutation_is_valid() {
        let mut count = 0;
        for &kernel in Kernel::ALL {
            for prelude in [Prelude::Native, Prelude::Split] {
                let capabilities = match prelude {
                    Prelude::Native => naga::valid::Capabilities::SHADER_INT64,
                    Prelude::Split => naga::valid::Capabilities::empty(),
                };
                for limbs in Shape::LIMBS {
                    let module = parsed(kernel, prelude, limbs);
                    for team in [1, 2, 4, 8, 16] {
                        let flags = naga::valid::ValidationFlags::all();
                        let mut validator = naga::valid::Validator::new(flags, capabilities);
                        let info = validator.validate(&module);
                        let info = info.unwrap_or_else(|why| {
                            let text = kernel.text(prelude, limbs);
                            panic!("{}: {}", kernel.name(), why.emit_to_string(&text))
                        });
                        let mut constants = naga::back::PipelineConstants::default();
                        if kernel.has_teams() {
                            constants.insert("TEAM".into(), f64::from(team));
                        }
                        let (module, _) = naga::back::pipeline_constants::process_overrides(
                            &module, &info, None, &constants,
                        )
                        .unwrap();
                        assert!(validator.validate(&module).is_ok(), "{}", kernel.name());
                        let group = module.entry_points[0].workgroup_size[0];
                        assert_eq!(group, kernel.threads(), "{}", kernel.name());
                        count += 1;
                    }
                }
            }
        }
        assert_eq!(count, Kernel::ALL.len() * 2 * 2 * 5);
    }

    /// Returns name and place of each member of the structure `Params` of a kernel, and its size.
    fn declared(kernel: Kernel) -> (Vec<(String, usize)>, usize) {
        let module = parsed(kernel, Prelude::Split, 14);
        let params = module.types.iter().find(|(_, ty)| ty.name.as_deref() == Some("Params"));
        let Some((_, naga::Type { inner: naga::TypeInner::Struct { members, span }, .. })) = params
        else {
            panic!("{} has parameters", kernel.name())
        };
        let name = |member: &naga::StructMember| member.name.clone().unwrap();
        let members = members.iter().map(|m| (name(m), m.offset as usize)).collect();
        (members, *span as usize)
    }

    /// Parameters lie where kernels read them.
    #[test]
    fn parameters_lie_where_kernels_read_them() {
        for &kernel in Kernel::ALL {
            let fields = match kernel {
                Kernel::Numbers(_) => Params::FIELDS,
                Kernel::Rings(_) => RingParams::FIELDS,
                Kernel::Words(_) => WordParams::FIELDS,
            };
            let places =
                fields.iter().zip(0..).map(|(field, place)| (field.to_string(), 4 * place));
            let (declared, span) = declared(kernel);
            assert_eq!((declared, span), (places.collect(), 4 * fields.len()), "{}", kernel.name());
            assert!(span <= PARAMS_BYTES);
        }
    }

    /// R' ≥ 4m for every size.
    #[test]
    fn shapes_have_room_for_every_modulus() {
        for words in 1..=128 {
            let shape = Shape::of_words(words);
            assert!(shape.radix_bits() >= 64 * words as u32 + 2 && shape.team <= GROUP);
        }
        // The sizes of keys fit closely.
        assert_eq!(Shape::of_words(32), Shape { team: 4, limbs: 18 });
        assert_eq!(Shape::of_words(64), Shape { team: 8, limbs: 18 });
        assert_eq!(Shape::of_words(96), Shape { team: 16, limbs: 14 });
        assert_eq!(Shape::of_words(128), Shape { team: 16, limbs: 18 });
    }

    /// A column takes products for as many limbs of a factor as a thread has, of pairs three for
    /// each.
    #[test]
    fn columns_have_room() {
        for limbs in Shape::LIMBS {
            assert_eq!(limbs % 2, 0);
            let products = u128::from(3 * limbs) << (2 * LIMB_BITS);
            // What the rank above handed down, the complement of a digit, one limb of m, and a
            // carry.
            assert!(products + (3 << LIMB_BITS) + (1 << 36) < 1 << 64, "{limbs} limbs");
        }
    }
}
