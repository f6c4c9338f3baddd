//! The store in one minute: sum, update, pull. Run it with `cargo run -p kvstore --example
//! quickstart`.

use kvstore::{DType, Device, Optimizer, Result, create, full, ones, zeros};

fn main() -> Result<()> {
    let store = create("local")?;
    let shape = [2, 3];
    let out = zeros(shape, DType::F32, Device::cpu(0))?;

    store.init("3", &full(shape, 2.0, DType::F32, Device::cpu(0))?)?;
    store.pull("3", &out)?;
    println!("initialised      {:?}", out.to_vec::<f32>()?);

    // The store sums three values from three devices.
    let replicas: Vec<_> =
        (0..3).map(|i| ones(shape, DType::F32, Device::cpu(i))).collect::<Result<_>>()?;
    store.push("3", &replicas)?;
    store.pull("3", &out)?;
    println!("sum of three     {:?}", out.to_vec::<f32>()?);

    // An updater changes the stored value on each push.
    store.set_updater(|_key, pushed, stored| Ok(stored.add_assign(&pushed.mul_scalar(2)?)?))?;
    store.push("3", &replicas)?;
    store.pull("3", &out)?;
    println!("updated by 2 * 3 {:?}", out.to_vec::<f32>()?);

    // An optimizer runs on the store, in one pass with the sum.
    store.set_optimizer(Optimizer::sgd().with("learning_rate", 0.1)?.with("momentum", 0.9)?)?;
    for _ in 0..2 {
        store.push("3", &replicas)?;
    }
    store.pull("3", &out)?;
    println!("two steps of SGD {:?}", out.to_vec::<f32>()?);
    Ok(())
}
