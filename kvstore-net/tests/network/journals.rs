//! Reads the rounds of a journal, as `docs/reference/formats.md` describes them.

use std::collections::BTreeMap;
use std::path::Path;

use kvstore::backends;
use kvstore_core::{
    BinaryOp, Compression, DType, Device, Key, KvStore, LocalStore, RowSparse, Scalar, Tensor,
    TensorSpec, Value,
};
use prost::Message;

use super::key;

#[derive(Clone, PartialEq, Message)]
struct Attempt {
    #[prost(message, repeated, tag = "1")]
    members: Vec<AttemptMember>,
}

#[derive(Clone, PartialEq, Message)]
struct AttemptMember {
    #[prost(message, optional, tag = "1")]
    participant: Option<Participant>,
    #[prost(message, optional, tag = "2")]
    push: Option<Push>,
}

#[derive(Clone, PartialEq, Message)]
struct Participant {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(double, optional, tag = "4")]
    weight: Option<f64>,
}

#[derive(Clone, PartialEq, Message)]
struct Push {
    #[prost(message, repeated, tag = "1")]
    values: Vec<Head>,
    #[prost(message, optional, tag = "3")]
    compression: Option<Codes>,
}

#[derive(Clone, PartialEq, Message)]
struct Head {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(message, optional, tag = "2")]
    spec: Option<Spec>,
    #[prost(uint64, optional, tag = "3")]
    num_rows: Option<u64>,
}

#[derive(Clone, PartialEq, Message)]
struct Spec {
    #[prost(string, tag = "1")]
    dtype: String,
    #[prost(uint64, repeated, tag = "2")]
    shape: Vec<u64>,
}

#[derive(Clone, PartialEq, Message)]
struct Codes {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(double, tag = "2")]
    threshold: f64,
}

#[derive(Clone, PartialEq, Message)]
struct Part {
    #[prost(uint64, tag = "1")]
    attempt: u64,
    #[prost(uint32, tag = "2")]
    member: u32,
}

#[derive(Clone, PartialEq, Message)]
struct Call {
    #[prost(message, repeated, tag = "2")]
    participants: Vec<Participant>,
    #[prost(uint64, tag = "7")]
    attempt: u64,
}

/// The push of a member to a round.
pub(crate) struct MemberPush {
    pub(crate) name: String,
    pub(crate) weight: Option<f64>,
    pub(crate) keys: Vec<Key>,
    /// Without compression.
    pub(crate) values: Vec<Value>,
}

/// The rounds of a journal.
#[derive(Default)]
pub(crate) struct Rounds {
    /// Those that were applied, in their order.
    pub(crate) applied: Vec<Vec<MemberPush>>,
    /// The members of the attempts that were given up, with the number of bytes of each.
    pub(crate) given_up: Vec<Vec<(String, usize)>>,
}

/// Reads the rounds of a journal that ends in order.
pub(crate) fn rounds(journal: &Path) -> Rounds {
    let bytes = std::fs::read(journal).unwrap();
    let mut rest = &bytes[24..];
    let mut attempts: BTreeMap<u64, (Attempt, Vec<Vec<u8>>)> = BTreeMap::new();
    let mut rounds = Rounds::default();
    while !rest.is_empty() {
        let number = |at: usize, len: usize| {
            rest[at..at + len]
                .iter()
                .rev()
                .fold(0_u64, |number, byte| number << 8 | u64::from(*byte))
        };
        let len = |at: usize| usize::try_from(number(at, 4)).unwrap();
        let (head, data) = rest[24..24 + len(0) + len(4)].split_at(len(0));
        match number(16, 4) {
            3 => {
                let call = Call::decode(head).unwrap();
                if call.attempt != 0 {
                    let (attempt, data) = attempts.remove(&call.attempt).unwrap();
                    let of_attempt =
                        attempt.members.iter().filter_map(|member| member.participant.clone());
                    assert!(of_attempt.eq(call.participants));
                    rounds.applied.push(
                        attempt
                            .members
                            .iter()
                            .zip(&data)
                            .map(|(member, data)| push(member, data))
                            .collect(),
                    );
                }
            }
            7 => {
                let attempt = Attempt::decode(head).unwrap();
                let data = attempt.members.iter().map(|_| Vec::new()).collect();
                attempts.insert(number(8, 8), (attempt, data));
            }
            8 => {
                assert!(data.len() <= 1 << 20);
                let part = Part::decode(head).unwrap();
                let found = &mut attempts.get_mut(&part.attempt).unwrap().1;
                found[usize::try_from(part.member).unwrap()].extend_from_slice(data);
            }
            _ => {}
        }
        rest = &rest[24 + len(0) + len(4) + 8..];
    }
    let given_up = attempts.into_values().map(|(attempt, data)| {
        let names = attempt.members.into_iter().map(|member| member.participant.unwrap().name);
        names.zip(data.iter().map(Vec::len)).collect()
    });
    rounds.given_up.extend(given_up);
    rounds
}

fn push(member: &AttemptMember, mut data: &[u8]) -> MemberPush {
    let Participant { name, weight } = member.participant.clone().unwrap();
    let push = member.push.as_ref().unwrap();
    let compression = push.compression.as_ref().filter(|found| !found.name.is_empty());
    let compression =
        compression.map(|found| Compression::new(&found.name, found.threshold).unwrap());
    let mut take = |spec: TensorSpec| {
        let (now, later) = data.split_at(spec.num_bytes().unwrap());
        data = later;
        Tensor::from_bytes(backends(), Device::cpu(0), spec, now).unwrap()
    };
    let value = |head: &Head| -> Value {
        let Spec { dtype, shape } = head.spec.as_ref().unwrap();
        let dtype = DType::from_name(dtype).unwrap();
        let mut shape: Vec<_> = shape.iter().map(|dim| usize::try_from(*dim).unwrap()).collect();
        let spec = TensorSpec::new(shape.clone(), dtype);
        match (head.num_rows, compression) {
            (Some(num_rows), _) => {
                let complete = shape.clone();
                shape[0] = usize::try_from(num_rows).unwrap();
                let indices = take(TensorSpec::new([shape[0]], DType::I64)).to_vec().unwrap();
                RowSparse::new(complete, indices, take(TensorSpec::new(shape, dtype)))
                    .unwrap()
                    .into()
            }
            (None, Some(compression)) => {
                let num_bytes = compression.code().num_bytes(spec.shape().num_elements());
                let codes = take(TensorSpec::new([num_bytes], DType::U8));
                compression.decode(backends(), &codes, spec).unwrap().into()
            }
            (None, None) => take(spec).into(),
        }
    };
    let values = push.values.iter().map(value).collect();
    assert_eq!(data.len(), 0);
    MemberPush {
        name,
        weight,
        keys: push.values.iter().map(|head| key(&head.key)).collect(),
        values,
    }
}

/// Makes the push of a round in a local store.
pub(crate) fn push_to_model(model: &LocalStore, round: &[MemberPush]) {
    let weights = round.iter().map(|push| push.weight);
    let Some(total) = weights.reduce(|sum, next| Some(sum? + next?)).flatten() else {
        let keys: Vec<_> = round.iter().flat_map(|push| push.keys.clone()).collect();
        let values: Vec<_> = round.iter().flat_map(|push| push.values.clone()).collect();
        return model.push(&keys, &values, 0).unwrap();
    };
    let means: Vec<Value> = (0..round[0].keys.len())
        .map(|key| {
            let addends: Vec<_> = round.iter().map(|push| push.values[key].clone()).collect();
            let sum = Value::sum(&addends).unwrap();
            sum.binary_scalar(BinaryOp::Div, Scalar::from(total), false).unwrap()
        })
        .collect();
    model.push(&round[0].keys, &means, 0).unwrap();
}
