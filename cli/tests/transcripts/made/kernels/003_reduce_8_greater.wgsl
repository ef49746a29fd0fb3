@group(0) @binding(0) 
var<storage> p0_: array<f32>;
@group(0) @binding(1) 
var<storage> p1_: array<f32>;
@group(0) @binding(2) 
var<storage, read_write> greater_1_1: array<u32>;
var<workgroup> reduce_0_part: array<f32, 32>;
var<workgroup> reduce_0_tree: array<f32, 2>;

@compute @workgroup_size(32, 1, 1) 
fn greater_1_(@builtin(local_invocation_id) local: vec3<u32>) {
    var minus_inf_bits: u32 = 4286578688u;
    var reduce_0_part_acc: f32;
    var reduce_0_tree_acc: f32;
    var reduce_0_tree_reduce_0_all_t_o: i32;
    var reduce_0_: f32;
    var reduce_0_all_t_i: i32;

    let reduce_0_part_reduce_0_all_t = i32(local.x);
    let _e6 = minus_inf_bits;
    reduce_0_part_acc = bitcast<f32>(_e6);
    let _e9 = reduce_0_part_acc;
    let p0_1 = p0_[reduce_0_part_reduce_0_all_t];
    reduce_0_part_acc = select(p0_1, _e9, ((_e9 > p0_1) | ((bitcast<u32>(_e9) & 2147483647u) > 2139095040u)));
    let _e21 = reduce_0_part_acc;
    reduce_0_part[reduce_0_part_reduce_0_all_t] = _e21;
    workgroupBarrier();
    if (reduce_0_part_reduce_0_all_t < 2i) {
        let _e26 = minus_inf_bits;
        reduce_0_tree_acc = bitcast<f32>(_e26);
        reduce_0_tree_reduce_0_all_t_o = 0i;
        loop {
            let reduce_0_tree_reduce_0_all_t_o_1 = reduce_0_tree_reduce_0_all_t_o;
            let _e32 = reduce_0_tree_acc;
            let reduce_0_part_1 = reduce_0_part[(reduce_0_part_reduce_0_all_t + (reduce_0_tree_reduce_0_all_t_o_1 * 2i))];
            reduce_0_tree_acc = select(reduce_0_part_1, _e32, ((_e32 > reduce_0_part_1) | ((bitcast<u32>(_e32) & 2147483647u) > 2139095040u)));
            continuing {
                let _e44 = (reduce_0_tree_reduce_0_all_t_o_1 + 1i);
                reduce_0_tree_reduce_0_all_t_o = _e44;
                break if (_e44 >= 16i);
            }
        }
        let _e46 = reduce_0_tree_acc;
        reduce_0_tree[reduce_0_part_reduce_0_all_t] = _e46;
    }
    let _e49 = minus_inf_bits;
    reduce_0_ = bitcast<f32>(_e49);
    workgroupBarrier();
    reduce_0_all_t_i = 0i;
    loop {
        let reduce_0_all_t_i_1 = reduce_0_all_t_i;
        let _e54 = reduce_0_;
        let reduce_0_tree_1 = reduce_0_tree[reduce_0_all_t_i_1];
        reduce_0_ = select(reduce_0_tree_1, _e54, ((_e54 > reduce_0_tree_1) | ((bitcast<u32>(_e54) & 2147483647u) > 2139095040u)));
        continuing {
            let _e63 = (reduce_0_all_t_i_1 + 1i);
            reduce_0_all_t_i = _e63;
            break if (_e63 >= 2i);
        }
    }
    if (reduce_0_part_reduce_0_all_t < 1i) {
        let _e66 = reduce_0_;
        let p1_1 = p1_[0];
        greater_1_1[0] = select(0u, 1u, (_e66 > p1_1));
    }
    return;
}
