@group(0) @binding(0) 
var<storage> p0_: array<f32>;
@group(0) @binding(1) 
var<storage> p1_: array<i32>;
@group(0) @binding(2) 
var<storage, read_write> gather_0_1: array<f32>;

@compute @workgroup_size(32, 1, 1) 
fn gather_0_(@builtin(local_invocation_id) local: vec3<u32>) {
    let gather_0_i_t = i32(local.x);
    let p1_1 = p1_[0];
    let _e11 = min(max(p1_1, -20i), 19i);
    let p0_1 = p0_[((select(_e11, (_e11 + 20i), (_e11 < 0i)) * 32i) + gather_0_i_t)];
    gather_0_1[gather_0_i_t] = p0_1;
    return;
}
