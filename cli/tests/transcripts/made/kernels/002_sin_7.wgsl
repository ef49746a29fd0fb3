@group(0) @binding(0) 
var<storage> p0_: array<f32>;
@group(0) @binding(1) 
var<storage, read_write> sin_0_1: array<f32>;

@compute @workgroup_size(32, 1, 1) 
fn sin_0_(@builtin(local_invocation_id) local: vec3<u32>) {
    let sin_0_i_t = i32(local.x);
    let p0_1 = p0_[sin_0_i_t];
    sin_0_1[sin_0_i_t] = sin(p0_1);
    return;
}
