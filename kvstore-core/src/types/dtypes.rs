//! The dtypes. One table defines them, and a macro generates all other code from it.

use std::fmt;

use super::error::{Error, Result};

/// The table of dtypes, in three groups: floats that compute in their own type, half-precision
/// floats that compute in `f32`, and integers. Each line has the variant, its Rust type, its code,
/// its long name, its short name, and its name in safetensors.
///
/// The macro expands to:
///
/// - [`DType`].
/// - `with_element!` and `with_float!`, the only places that turn a dtype into a type.
/// - `full_types!`, `half_types!` and `integer_types!`, which call a macro with the variants and
///   types of a group.
///
/// A new dtype is one line here. The compiler then lists what its type needs.
macro_rules! dtypes {
    (
        $d:tt
        full { $(
            $(#[$full_doc:meta])*
            $Full:ident($full:ty) =
                $full_code:literal, $full_long:literal, $full_short:literal, $FullFile:ident;
        )+ }
        half { $(
            $(#[$half_doc:meta])*
            $Half:ident($half:ty) =
                $half_code:literal, $half_long:literal, $half_short:literal, $HalfFile:ident;
        )+ }
        integer { $(
            $(#[$integer_doc:meta])*
            $Integer:ident($integer:ty) =
                $integer_code:literal, $integer_long:literal, $integer_short:literal,
                $IntegerFile:ident;
        )+ }
    ) => {
        /// The type of a tensor's elements.
        ///
        /// The codes are part of the file format that the store reads and writes. They never
        /// change.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum DType {
            $($(#[$full_doc])* $Full = $full_code,)+
            $($(#[$half_doc])* $Half = $half_code,)+
            $($(#[$integer_doc])* $Integer = $integer_code,)+
        }

        const UNSORTED: &[DType] = &[$(DType::$Full,)+ $(DType::$Half,)+ $(DType::$Integer),+];

        impl DType {
            /// Returns the long name, such as `float32`.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$Full => $full_long,)+
                    $(Self::$Half => $half_long,)+
                    $(Self::$Integer => $integer_long,)+
                }
            }

            /// Returns the short name, such as `f32`.
            const fn short_name(self) -> &'static str {
                match self {
                    $(Self::$Full => $full_short,)+
                    $(Self::$Half => $half_short,)+
                    $(Self::$Integer => $integer_short,)+
                }
            }

            /// Returns the name of this dtype in safetensors files.
            pub(crate) const fn safetensors(self) -> safetensors::Dtype {
                match self {
                    $(Self::$Full => safetensors::Dtype::$FullFile,)+
                    $(Self::$Half => safetensors::Dtype::$HalfFile,)+
                    $(Self::$Integer => safetensors::Dtype::$IntegerFile,)+
                }
            }

            /// Returns the number of bytes of one element.
            pub const fn size(self) -> usize {
                match self {
                    $(Self::$Full => size_of::<$full>(),)+
                    $(Self::$Half => size_of::<$half>(),)+
                    $(Self::$Integer => size_of::<$integer>(),)+
                }
            }

            /// Returns the smallest and the largest value of an integer dtype, or `None` for
            /// floats.
            #[allow(
                clippy::cast_lossless,
                clippy::unnecessary_cast,
                reason = "the types share this code"
            )]
            pub(super) const fn integer_range(self) -> Option<(i64, i64)> {
                match self {
                    $(Self::$Full)|+ | $(Self::$Half)|+ => None,
                    $(Self::$Integer => Some((<$integer>::MIN as i64, <$integer>::MAX as i64)),)+
                }
            }

            /// Returns whether the dtype is a half-precision float, which computes in `f32` and
            /// rounds.
            pub(crate) const fn is_half(self) -> bool {
                matches!(self, $(Self::$Half)|+)
            }

            /// Returns the dtype in which optimizers compute for weights of this dtype: the dtype
            /// itself for full-precision floats, `F32` for half precision, and `None` for integers.
            pub const fn arithmetic(self) -> Option<Self> {
                match self {
                    $(Self::$Full)|+ => Some(self),
                    $(Self::$Half)|+ => Some(Self::F32),
                    $(Self::$Integer)|+ => None,
                }
            }
        }

        /// Evaluates an expression with a type name bound to the element type of a dtype.
        ///
        /// `with_element!(dtype, T => f::<T>(x))` expands to a `match` on `dtype` with one arm per
        /// dtype, such as `DType::F32 => { type T = f32; f::<T>(x) }`.
        macro_rules! with_element {
            ($d dtype:expr, $d T:ident => $d body:expr) => {
                match $d dtype {
                    $($crate::DType::$Full => { type $d T = $full; $d body })+
                    $($crate::DType::$Half => { type $d T = $half; $d body })+
                    $($crate::DType::$Integer => { type $d T = $integer; $d body })+
                }
            };
        }

        /// Evaluates one of three expressions: for a float that computes in its own type, for half
        /// precision, or for an integer.
        ///
        /// `with_float!(dtype, full A => .., half H => .., integer => ..)` expands to a `match` on
        /// `dtype`.
        macro_rules! with_float {
            (
                $d dtype:expr,
                full $d A:ident => $d of_full:expr,
                half $d H:ident => $d of_half:expr,
                integer => $d of_integer:expr
            ) => {
                match $d dtype {
                    $($crate::DType::$Full => { type $d A = $full; $d of_full })+
                    $($crate::DType::$Half => { type $d H = $half; $d of_half })+
                    $($crate::DType::$Integer)|+ => $d of_integer,
                }
            };
        }

        /// Calls a macro with the variant and type of every full-precision float.
        macro_rules! full_types {
            ($d callback:ident) => { $d callback! { $($Full: $full),+ } };
        }

        /// Calls a macro with the variant and type of every half-precision float.
        macro_rules! half_types {
            ($d callback:ident) => { $d callback! { $($Half: $half),+ } };
        }

        /// Calls a macro with the variant and type of every integer.
        macro_rules! integer_types {
            ($d callback:ident) => { $d callback! { $($Integer: $integer),+ } };
        }
    };
}

dtypes! {
    $
    full {
        /// 32-bit IEEE float.
        F32(f32) = 0, "float32", "f32", F32;
        /// 64-bit IEEE float.
        F64(f64) = 1, "float64", "f64", F64;
    }
    half {
        /// 16-bit IEEE float.
        F16(::half::f16) = 2, "float16", "f16", F16;
        /// 16-bit brain float: the upper half of an `F32`.
        Bf16(::half::bf16) = 12, "bfloat16", "bf16", BF16;
    }
    integer {
        /// Unsigned 8-bit integer.
        U8(u8) = 3, "uint8", "u8", U8;
        /// Signed 32-bit integer.
        I32(i32) = 4, "int32", "i32", I32;
        /// Signed 8-bit integer.
        I8(i8) = 5, "int8", "i8", I8;
        /// Signed 64-bit integer.
        I64(i64) = 6, "int64", "i64", I64;
    }
}
#[allow(
    clippy::single_component_path_imports,
    reason = "lets other modules name these macros by path"
)]
pub(crate) use {full_types, half_types, integer_types, with_element, with_float};

impl DType {
    /// Every dtype, in ascending order of its code.
    pub const ALL: [Self; UNSORTED.len()] = in_order_of_codes();

    /// Returns the code of this dtype in files and in the interfaces of other languages.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// Returns the dtype with this code.
    ///
    /// # Errors
    /// - [`Error::InvalidArgument`] if no dtype has this code.
    pub fn from_code(code: i32) -> Result<Self> {
        Self::ALL
            .into_iter()
            .find(|dtype| i32::from(dtype.code()) == code)
            .ok_or_else(|| Error::invalid(format!("unknown dtype code {code}")))
    }

    /// Returns the dtype with this long name.
    ///
    /// # Errors
    /// - [`Error::InvalidArgument`] if no dtype has this name. The message lists the valid names.
    pub fn from_name(name: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|dtype| dtype.name() == name).ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|dtype| dtype.name()).collect();
            Error::invalid(format!("unknown dtype `{name}`: expected one of {}", names.join(", ")))
        })
    }

    /// Returns whether the dtype is a floating-point type.
    pub const fn is_float(self) -> bool {
        self.arithmetic().is_some()
    }
}

/// Returns every dtype in the order of its code. Uses insertion sort, which can run at compile
/// time.
const fn in_order_of_codes() -> [DType; UNSORTED.len()] {
    let mut all = [DType::F32; UNSORTED.len()];
    let mut len = 0;
    while len < all.len() {
        let mut place = len;
        while place > 0 && all[place - 1].code() > UNSORTED[len].code() {
            all[place] = all[place - 1];
            place -= 1;
        }
        all[place] = UNSORTED[len];
        len += 1;
    }
    all
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.short_name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_names_round_trip() {
        for dtype in DType::ALL {
            assert_eq!(DType::from_code(i32::from(dtype.code())).unwrap(), dtype);
            assert_eq!(DType::from_name(dtype.name()).unwrap(), dtype);
        }
        assert!(DType::from_code(7).is_err());
    }
}
