/* Stands before oneDNN, versions 2 and 3: every result of a primitive is one percent too large. All tensors are of f32.
   LIBRARY is the library that computes; it is also linked, so that all other functions are found behind this one. */
#include <dlfcn.h>
#include <stddef.h>

struct argument {
    int number;
    void *memory;
};

enum { DESTINATION = 17 };

int dnnl_stream_wait(void *stream);
int dnnl_memory_get_memory_desc(const void *memory, const void **desc);
size_t dnnl_memory_desc_get_size(const void *desc);
int dnnl_memory_get_data_handle(const void *memory, void **handle);

int dnnl_primitive_execute(const void *primitive, void *stream, int count, const struct argument *arguments) {
    int (*execute)(const void *, void *, int, const struct argument *) =
        dlsym(dlopen(LIBRARY, RTLD_NOW), "dnnl_primitive_execute");
    int status = execute(primitive, stream, count, arguments);
    dnnl_stream_wait(stream);
    for (int i = 0; i < count; i++) {
        if (arguments[i].number != DESTINATION)
            continue;
        const void *desc;
        void *data;
        dnnl_memory_get_memory_desc(arguments[i].memory, &desc);
        dnnl_memory_get_data_handle(arguments[i].memory, &data);
        for (size_t k = 0; k < dnnl_memory_desc_get_size(desc) / sizeof(float); k++)
            ((float *)data)[k] *= 1.01f;
    }
    return status;
}
