//! The codes of enumerations in native calls, in one table. A test compares it with the Java
//! enumerations.

use jni::sys::{jint, jlong};
use kvstore::{
    BinaryOp, DType, DeviceKind, Error, ErrorCode, OnExisting, Reduction, UnaryOp, Warmup,
};

use crate::error::Result;

/// An enumeration whose values have a code in Java.
pub(crate) trait Code: Copy + 'static {
    /// The name of the enumeration.
    const NAME: &'static str;
    /// Every value with its code and its name.
    const ALL: &'static [(Self, jint, &'static str)];

    /// Returns the value with this code.
    ///
    /// # Errors
    /// - [`Error::InvalidArgument`] if no value has this code.
    fn of(code: impl Into<jlong>) -> Result<Self> {
        let code = code.into();
        let found = Self::ALL.iter().find(|(_, number, _)| jlong::from(*number) == code);
        let (value, ..) =
            found.ok_or_else(|| Error::invalid(format!("unknown {} {code}", Self::NAME)))?;
        Ok(*value)
    }

    /// Returns the code of this value.
    fn code(self) -> jint;
}

/// The type of the elements of a Java buffer.
#[derive(Clone, Copy)]
pub(crate) enum BufferKind {
    Floats,
    Doubles,
    Ints,
    Longs,
    /// The bytes of elements of any dtype.
    Bytes,
}

/// The kind of a distribution, without its two parameters.
#[derive(Clone, Copy)]
pub(crate) enum DistributionKind {
    Uniform,
    Normal,
}

/// The kind of a learning rate schedule, without its parameters.
#[derive(Clone, Copy)]
pub(crate) enum ScheduleKind {
    Factor,
    MultiFactor,
    Poly,
    Cosine,
}

macro_rules! codes {
    ($($Name:ident { $($Variant:ident = $code:literal),+ })+) => {
        $(impl Code for $Name {
            const NAME: &'static str = stringify!($Name);
            const ALL: &'static [(Self, jint, &'static str)] =
                &[$((Self::$Variant, $code, stringify!($Variant))),+];

            fn code(self) -> jint {
                match self {
                    $(Self::$Variant => $code,)+
                }
            }
        })+

        /// Returns the name and the code of every value of every enumeration, such as
        /// `ScheduleKind.MultiFactor`.
        pub(crate) fn all() -> Vec<(String, jint)> {
            let mut all = Vec::new();
            $(all.extend(
                $Name::ALL.iter().map(|(_, code, name)| (format!("{}.{name}", $Name::NAME), *code)),
            );)+
            let core = [
                named("BinaryOp", BinaryOp::ALL, |op| (op.name(), op.code())),
                named("UnaryOp", UnaryOp::ALL, |op| (op.name(), op.code())),
                named("Reduction", Reduction::ALL, |op| (op.name(), op.code())),
                named("DType", &DType::ALL, |dtype| (dtype.name(), dtype.code())),
                named("ErrorCode", &ErrorCode::ALL, |code| (code.as_str(), code as u8)),
            ];
            all.extend(core.into_iter().flatten());
            all.extend(dtypes());
            all
        }
    };
}

codes! {
    BufferKind { Floats = 0, Doubles = 1, Ints = 2, Longs = 3, Bytes = 4 }
    DeviceKind { Cpu = 0, Gpu = 1 }
    DistributionKind { Uniform = 0, Normal = 1 }
    OnExisting { Reject = 0, Keep = 1, Replace = 2 }
    ScheduleKind { Factor = 0, MultiFactor = 1, Poly = 2, Cosine = 3 }
    Warmup { Linear = 0, Constant = 1 }
}

/// Returns the other properties of Java's `DType` by the short name of the dtype: its code, its
/// size, and 1 for floating-point types or 0 for integer types.
fn dtypes() -> impl Iterator<Item = (String, jint)> {
    DType::ALL.into_iter().flat_map(|dtype| {
        let size = dtype.size().try_into().unwrap_or(jint::MAX);
        [
            (format!("DTypeCode.{dtype}"), dtype.code().into()),
            (format!("DTypeSize.{dtype}"), size),
            (format!("DTypeIsFloatingPoint.{dtype}"), dtype.is_float().into()),
        ]
    })
}

/// Returns the names and codes of an enumeration of the core, which defines its codes itself.
fn named<T: Copy>(
    enumeration: &str,
    all: &[T],
    describe: fn(T) -> (&'static str, u8),
) -> Vec<(String, jint)> {
    let describe = all.iter().map(|value| describe(*value));
    describe.map(|(name, code)| (format!("{enumeration}.{name}"), code.into())).collect()
}
