/* The part of oneDNN 2's C interface that regions use, with the numbers of its header dnnl_types.h, and the tensors and
 * steps of a region. Written by Weft; oneDNN: https://github.com/oneapi-src/oneDNN
 *
 * Errors: the first one is kept as a text, and nothing runs after it. */
#ifndef WEFT_DNNL_H
#define WEFT_DNNL_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* dnnl_memory_desc_t: a struct of this size, which the library fills. */
typedef struct {
  uint64_t words[87];
} layout;
/* Room for the descriptor of any operation. */
typedef struct {
  uint64_t words[1024];
} operation;
typedef struct {
  int number;
  void *memory;
} argument;

enum { F32 = 3, ANY_LAYOUT = 1, CPU = 1, FORWARD_INFERENCE = 96, CONVOLUTION_DIRECT = 1 };
/* Numbers of arguments. */
enum { SOURCE = 1, SECOND = 2, DESTINATION = 17, WEIGHTS = 33, BIAS = 41, MEAN = 49, VARIANCE = 50, SCALE = 51, SHIFT = 52 };
#define MULTIPLE(i) (1024 + (i))
#define POST_OP(i) ((16384 * ((i) + 1)) | SECOND)
/* What a primitive is asked for: the layouts that the library chose. */
enum { OF_SOURCE = 129, OF_WEIGHTS = 131, OF_DESTINATION = 133 };
/* Batch norm with given statistics, scale and shift. */
enum { GIVEN_STATISTICS_SCALE_SHIFT = 1 | 8 | 16 };

#ifdef __cplusplus
extern "C" {
#endif
int dnnl_engine_create(void **engine, int kind, size_t index);
int dnnl_engine_destroy(void *engine);
int dnnl_stream_create(void **stream, void *engine, unsigned flags);
int dnnl_stream_wait(void *stream);
int dnnl_stream_destroy(void *stream);
int dnnl_memory_desc_init_by_strides(layout *made, int rank, const int64_t *dims, int type, const int64_t *strides);
int dnnl_memory_desc_init_by_tag(layout *made, int rank, const int64_t *dims, int type, int tag);
int dnnl_memory_desc_equal(const layout *a, const layout *b);
size_t dnnl_memory_desc_get_size(const layout *of);
int dnnl_memory_create(void **memory, const layout *of, void *engine, void *data);
int dnnl_memory_get_data_handle(const void *memory, void **data);
int dnnl_memory_destroy(void *memory);
int dnnl_post_ops_create(void **list);
int dnnl_post_ops_append_sum(void *list, float scale);
int dnnl_post_ops_append_eltwise(void *list, float scale, int algorithm, float alpha, float beta);
int dnnl_post_ops_append_binary(void *list, int algorithm, const layout *second);
int dnnl_post_ops_destroy(void *list);
int dnnl_primitive_attr_create(void **attributes);
int dnnl_primitive_attr_set_post_ops(void *attributes, const void *list);
int dnnl_primitive_attr_destroy(void *attributes);
int dnnl_dilated_convolution_forward_desc_init(operation *made, int kind, int algorithm, const layout *source, const layout *weights, const layout *bias, const layout *destination, const int64_t *strides, const int64_t *dilates, const int64_t *begin, const int64_t *end);
int dnnl_matmul_desc_init(operation *made, const layout *source, const layout *weights, const layout *bias, const layout *destination);
int dnnl_pooling_v2_forward_desc_init(operation *made, int kind, int algorithm, const layout *source, const layout *destination, const int64_t *strides, const int64_t *kernel, const int64_t *dilates, const int64_t *begin, const int64_t *end);
int dnnl_eltwise_forward_desc_init(operation *made, int kind, int algorithm, const layout *data, float alpha, float beta);
int dnnl_binary_desc_init(operation *made, int algorithm, const layout *first, const layout *second, const layout *destination);
int dnnl_softmax_forward_desc_init(operation *made, int kind, const layout *data, int axis);
int dnnl_batch_normalization_forward_desc_init(operation *made, int kind, const layout *data, float epsilon, unsigned flags);
int dnnl_concat_primitive_desc_create(void **made, const layout *destination, int count, int axis, const layout *sources, const void *attributes, void *engine);
int dnnl_reorder_primitive_desc_create(void **made, const layout *from, void *from_engine, const layout *to, void *to_engine, const void *attributes);
int dnnl_primitive_desc_create(void **made, const operation *of, const void *attributes, void *engine, const void *hint);
const layout *dnnl_primitive_desc_query_md(const void *descriptor, int what, int index);
int dnnl_primitive_desc_destroy(void *descriptor);
int dnnl_primitive_create(void **made, const void *descriptor);
int dnnl_primitive_execute(const void *primitive, void *stream, int count, const argument *arguments);
int dnnl_primitive_destroy(void *primitive);
#ifdef __cplusplus
}
#endif

/* A tensor of f32. `plain`: it is dense and row-major. */
typedef struct {
  layout layout;
  void *memory;
  void *data;
  int rank;
  int64_t dims[12];
  int plain;
} tensor;

typedef struct {
  void *descriptor;
  void *handle;
} primitive;

typedef struct {
  primitive primitive;
  int count;
  argument *arguments;
} step;

/* What a region consists of: its steps in order, and all that is to be freed. */
typedef struct region {
  void *engine;
  void *stream;
  tensor *tensors;
  step *steps;
  size_t step_count;
  void **memories;
  size_t memory_count;
  primitive *primitives;
  size_t primitive_count;
  int failed;
  char message[256];
} region;

static inline void region_fail(region *r, const char *text, ...) {
  va_list list;
  if (r->failed) return;
  r->failed = 1;
  va_start(list, text);
  vsnprintf(r->message, sizeof r->message, text, list);
  va_end(list);
}

static inline void check(region *r, const char *what, int status) {
  if (status == 1)
    region_fail(r, "oneDNN has no memory for %s", what);
  else if (status == 3)
    region_fail(r, "oneDNN does not implement %s", what);
  else if (status != 0)
    region_fail(r, "oneDNN refuses %s (status %d)", what, status);
}

/* Room for one more element. */
static inline void *grown(region *r, void *list, size_t count, size_t bytes) {
  void *more = realloc(list, (count + 1) * bytes);
  if (!more) region_fail(r, "there is no memory");
  return more;
}

static inline layout dense(region *r, int rank, const int64_t *dims) {
  layout made;
  int64_t strides[12], next = 1;
  int i;
  memset(&made, 0, sizeof made);
  for (i = rank - 1; i >= 0; --i) {
    strides[i] = next;
    next *= dims[i] > 1 ? dims[i] : 1;
  }
  if (!r->failed) check(r, "a tensor's layout", dnnl_memory_desc_init_by_strides(&made, rank, dims, F32, strides));
  return made;
}

static inline layout strided(region *r, int rank, const int64_t *dims, const int64_t *strides) {
  layout made;
  memset(&made, 0, sizeof made);
  if (!r->failed) check(r, "a tensor's layout", dnnl_memory_desc_init_by_strides(&made, rank, dims, F32, strides));
  return made;
}

/* The library chooses. */
static inline layout chosen(region *r, int rank, const int64_t *dims) {
  layout made;
  memset(&made, 0, sizeof made);
  if (!r->failed) check(r, "a tensor's layout", dnnl_memory_desc_init_by_tag(&made, rank, dims, F32, ANY_LAYOUT));
  return made;
}

/* A tensor with memory of its own, or with that at `data`. */
static inline tensor tensor_at(region *r, int rank, const int64_t *dims, const layout *of, void *data) {
  tensor t;
  layout border;
  void **list;
  memset(&t, 0, sizeof t);
  border = dense(r, rank, dims);
  if (r->failed) return t;
  t.layout = *of;
  t.rank = rank;
  memcpy(t.dims, dims, (size_t)rank * sizeof dims[0]);
  t.plain = dnnl_memory_desc_equal(of, &border) == 1;
  check(r, "a tensor", dnnl_memory_create(&t.memory, of, r->engine, data ? data : (void *)~(size_t)0));
  if (r->failed) return t;
  list = (void **)grown(r, r->memories, r->memory_count, sizeof list[0]);
  if (!list) return t;
  r->memories = list;
  list[r->memory_count++] = t.memory;
  check(r, "a tensor's memory", dnnl_memory_get_data_handle(t.memory, &t.data));
  return t;
}

static inline tensor made(region *r, int rank, const int64_t *dims, const layout *of) {
  return tensor_at(r, rank, dims, of, NULL);
}

static inline tensor plain(region *r, int rank, const int64_t *dims) {
  const layout of = dense(r, rank, dims);
  return made(r, rank, dims, &of);
}

/* The memory of a tensor, seen as stored in another way. */
static inline tensor seen(region *r, tensor t, int rank, const int64_t *dims, const layout *as) {
  if (!r->failed && dnnl_memory_desc_get_size(as) > dnnl_memory_desc_get_size(&t.layout)) region_fail(r, "a view is larger than its tensor");
  return tensor_at(r, rank, dims, as, t.data);
}

/* A list of post-ops. */
static inline void *post_ops(region *r) {
  void *list = NULL;
  if (!r->failed) check(r, "post-ops", dnnl_post_ops_create(&list));
  return list;
}

static inline primitive kept(region *r, primitive p) {
  primitive *list;
  if (r->failed) return p;
  list = (primitive *)grown(r, r->primitives, r->primitive_count, sizeof list[0]);
  if (!list) return p;
  r->primitives = list;
  list[r->primitive_count] = p;
  check(r, "a primitive", dnnl_primitive_create(&p.handle, p.descriptor));
  list[r->primitive_count++] = p;
  return p;
}

/* The primitive of an operation; frees the list of post-ops, which may be NULL. */
static inline primitive primitive_of(region *r, const char *what, const operation *of, void *list) {
  primitive p = {NULL, NULL};
  void *attributes = NULL;
  if (!r->failed) check(r, "attributes", dnnl_primitive_attr_create(&attributes));
  if (!r->failed && list) check(r, "post-ops", dnnl_primitive_attr_set_post_ops(attributes, list));
  if (!r->failed) check(r, what, dnnl_primitive_desc_create(&p.descriptor, of, attributes, r->engine, NULL));
  if (list) dnnl_post_ops_destroy(list);
  if (attributes) dnnl_primitive_attr_destroy(attributes);
  return kept(r, p);
}

static inline layout layout_of(region *r, primitive p, int what) {
  layout made;
  const layout *found = r->failed ? NULL : dnnl_primitive_desc_query_md(p.descriptor, what, 0);
  memset(&made, 0, sizeof made);
  if (found)
    made = *found;
  else
    region_fail(r, "oneDNN does not say how a tensor is stored");
  return made;
}

/* Runs in each run. */
static inline void add_step(region *r, primitive p, int count, const argument *arguments) {
  step *list, s = {p, count, NULL};
  if (r->failed) return;
  list = (step *)grown(r, r->steps, r->step_count, sizeof list[0]);
  if (!list) return;
  r->steps = list;
  s.arguments = (argument *)malloc((size_t)count * sizeof arguments[0]);
  if (!s.arguments) {
    region_fail(r, "there is no memory");
    return;
  }
  memcpy(s.arguments, arguments, (size_t)count * sizeof arguments[0]);
  list[r->step_count++] = s;
}

static inline void execute(region *r, primitive p, int count, const argument *arguments) {
  if (!r->failed) check(r, "a run", dnnl_primitive_execute(p.handle, r->stream, count, arguments));
  if (!r->failed) check(r, "a run", dnnl_stream_wait(r->stream));
}

/* Copies from one layout to another: in each run, or now. */
static inline void copy(region *r, tensor from, tensor to, int now) {
  primitive p = {NULL, NULL};
  const argument list[] = {{SOURCE, from.memory}, {DESTINATION, to.memory}};
  if (!r->failed) check(r, "a copy between two layouts", dnnl_reorder_primitive_desc_create(&p.descriptor, &from.layout, r->engine, &to.layout, r->engine, NULL));
  p = kept(r, p);
  if (now)
    execute(r, p, 2, list);
  else
    add_step(r, p, 2, list);
}

/* A tensor as a primitive wants it: itself, or a copy, which each run makes, or which is made now of a constant. */
static inline tensor stored_as(region *r, tensor t, layout as, int constant) {
  tensor to;
  if (r->failed || dnnl_memory_desc_equal(&t.layout, &as) == 1) return t;
  to = made(r, t.rank, t.dims, &as);
  copy(r, t, to, constant);
  return to;
}

/* Makes a tensor dense and row-major, for all who read it from now on. */
static inline tensor read_plain(region *r, tensor *t) {
  tensor to;
  if (r->failed || t->plain) return *t;
  to = plain(r, t->rank, t->dims);
  copy(r, *t, to, 0);
  *t = to;
  return to;
}

static inline void region_run_steps(region *r) {
  size_t i;
  for (i = 0; i < r->step_count; ++i) execute(r, r->steps[i].primitive, r->steps[i].count, r->steps[i].arguments);
}

static inline void region_close(region *r) {
  size_t i;
  for (i = 0; i < r->step_count; ++i) free(r->steps[i].arguments);
  for (i = 0; i < r->primitive_count; ++i) {
    if (r->primitives[i].handle) dnnl_primitive_destroy(r->primitives[i].handle);
    dnnl_primitive_desc_destroy(r->primitives[i].descriptor);
  }
  for (i = 0; i < r->memory_count; ++i) dnnl_memory_destroy(r->memories[i]);
  free(r->steps);
  free(r->primitives);
  free(r->memories);
  free(r->tensors);
  if (r->stream) dnnl_stream_destroy(r->stream);
  if (r->engine) dnnl_engine_destroy(r->engine);
  free(r);
}

/* A region with room for its tensors; NULL where there is no memory. */
static inline region *region_open(size_t tensors) {
  region *r = (region *)calloc(1, sizeof *r);
  if (!r) return NULL;
  r->tensors = (tensor *)calloc(tensors ? tensors : 1, sizeof r->tensors[0]);
  if (!r->tensors) region_fail(r, "there is no memory");
  if (!r->failed) check(r, "an engine for the processor", dnnl_engine_create(&r->engine, CPU, 0));
  if (!r->failed) check(r, "a stream", dnnl_stream_create(&r->stream, r->engine, 1));
  return r;
}

#endif
