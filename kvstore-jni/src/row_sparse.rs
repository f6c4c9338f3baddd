//! The native methods of `dev.kvstore.NativeRowSparse`.
#![expect(clippy::needless_pass_by_value, reason = "`native_method!` passes references by value")]
#![expect(clippy::unnecessary_wraps, reason = "`native_method!` requires a result")]

use jni::Env;
use jni::objects::{JClass, JLongArray, JObjectArray, JString};
use jni::sys::{jboolean, jint, jlong};
use kvstore::{Error, NDArray, RowSparse};

use crate::convert::{self, ROWS};
use crate::error::{Result, ThrowKVStoreException};

natives_of!($ "dev.kvstore.NativeRowSparse");

native!(fn create(rows: jlong, indices: jlong[], shape: jlong[], ids: jboolean) -> jlong[]);
fn create<'l>(
    env: &mut Env<'l>,
    _class: JClass<'_>,
    rows: jlong,
    indices: JLongArray<'_>,
    shape: JLongArray<'_>,
    ids: jboolean,
) -> Result<JLongArray<'l>> {
    let rows = convert::array(rows)?.tensor();
    let indices = convert::numbers(env, &indices, "indices")?;
    let shape = convert::shape(env, &shape)?;
    let value = if ids {
        RowSparse::from_ids(shape, &indices, rows)?
    } else {
        RowSparse::new(shape, indices, rows)?
    };
    convert::adopt_rows(env, Vec::from([value]))
}

native!(fn release(row_sparse: jlong));
fn release(_env: &mut Env<'_>, _class: JClass<'_>, row_sparse: jlong) -> Result<()> {
    drop(ROWS.remove(row_sparse));
    Ok(())
}

native!(fn num_rows(row_sparse: jlong) -> jint);
fn num_rows(_env: &mut Env<'_>, _class: JClass<'_>, row_sparse: jlong) -> Result<jint> {
    convert::count(ROWS.get(row_sparse)?.num_rows())
}

native!(fn indices(row_sparse: jlong) -> jlong[]);
fn indices<'l>(env: &mut Env<'l>, _class: JClass<'_>, row_sparse: jlong) -> Result<JLongArray<'l>> {
    convert::to_java(env, ROWS.get(row_sparse)?.indices())
}

native!(fn rows(row_sparse: jlong) -> jlong[]);
fn rows<'l>(env: &mut Env<'l>, _class: JClass<'_>, row_sparse: jlong) -> Result<JLongArray<'l>> {
    convert::adopt(env, NDArray::new(ROWS.get(row_sparse)?.rows().clone()))
}

native!(fn to_dense(row_sparse: jlong) -> jlong[]);
fn to_dense<'l>(
    env: &mut Env<'l>,
    _class: JClass<'_>,
    row_sparse: jlong,
) -> Result<JLongArray<'l>> {
    convert::adopt(env, NDArray::new(ROWS.get(row_sparse)?.to_dense()?))
}

native!(fn pull(store: jlong, keys: JString[], ids: jlong[], counts: jlong[]) -> jlong[]);
fn pull<'l>(
    env: &mut Env<'l>,
    _class: JClass<'_>,
    store: jlong,
    keys: JObjectArray<'_, JString<'_>>,
    ids: JLongArray<'_>,
    counts: JLongArray<'_>,
) -> Result<JLongArray<'l>> {
    let keys = convert::keys(env, &keys)?;
    let ids = convert::numbers(env, &ids, "ids")?;
    let counts = convert::numbers(env, &counts, "counts")?;
    let lists = lists(&ids, &counts)?;
    let pulled = convert::store(store)?.pull_rows(keys, &lists)?;
    convert::adopt_rows(env, pulled)
}

/// Splits the row indices into one list per key.
///
/// # Errors
/// - [`Error::InvalidArgument`] if the counts are negative or exceed the number of row indices.
fn lists<'a>(mut ids: &'a [jlong], counts: &[jlong]) -> Result<Vec<&'a [jlong]>> {
    let mut lists = kvstore::fallible::with_capacity(counts.len())?;
    for &count in counts {
        let (list, rest) =
            ids.split_at_checked(convert::position(count, "counts")?).ok_or_else(|| {
                Error::invalid("the number of rows exceeds the length of the row indices")
            })?;
        lists.push(list);
        ids = rest;
    }
    Ok(lists)
}
