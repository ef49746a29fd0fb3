/* Runs the network on files of raw elements: network [-n RUNS] weights.bin INPUT... OUTPUT... */
#include "network.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static void *memory(size_t bytes)
{
    void *at = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (!at) {
        fprintf(stderr, "no memory for %zu bytes\n", bytes);
        exit(1);
    }
    return memset(at, 0, bytes);
}

static void *content(const char *path, size_t bytes)
{
    void *at = memory(bytes ? bytes : 1);
    FILE *file = fopen(path, "rb");
    if (!file || fread(at, 1, bytes, file) != bytes || fgetc(file) != EOF) {
        fprintf(stderr, "%s: %zu bytes are expected\n", path, bytes);
        exit(1);
    }
    fclose(file);
    return at;
}

int main(int argc, char **argv)
{
    int runs = 1;
    if (argc > 2 && !strcmp(argv[1], "-n")) {
        runs = atoi(argv[2]);
        argc -= 2;
        argv += 2;
    }
    if (argc != 2 + NETWORK_INPUTS + NETWORK_OUTPUTS || runs < 1) {
        fprintf(stderr, "usage: network [-n RUNS] weights.bin, %d inputs, %d outputs\n", NETWORK_INPUTS, NETWORK_OUTPUTS);
        return 2;
    }
    const size_t input_bytes[] = NETWORK_INPUT_BYTES, output_bytes[] = NETWORK_OUTPUT_BYTES;
    void *inputs[NETWORK_INPUTS + 1] = {0};
    void *outputs[NETWORK_OUTPUTS + 1] = {0};
    void *weights = content(argv[1], NETWORK_WEIGHT_BYTES);
#ifdef NETWORK_PREPARED
    char message[256] = "";
    struct network *prepared = network_prepare(weights, message, sizeof message);
    if (!prepared) {
        fprintf(stderr, "%s\n", message);
        return 1;
    }
#else
    void *arena = memory(NETWORK_ARENA_BYTES);
#endif
    for (int i = 0; i < NETWORK_INPUTS; ++i) inputs[i] = content(argv[2 + i], input_bytes[i]);
    for (int i = 0; i < NETWORK_OUTPUTS; ++i) outputs[i] = memory(output_bytes[i]);
    double best = 0;
    for (int run = 0; run < runs; ++run) {
        clock_t start = clock();
#ifdef NETWORK_PREPARED
        if (network_run(prepared, (const void *const *)inputs, outputs, message, sizeof message)) {
            fprintf(stderr, "%s\n", message);
            return 1;
        }
#else
        network_run(weights, arena, (const void *const *)inputs, outputs);
#endif
        double ms = (double)(clock() - start) * 1e3 / CLOCKS_PER_SEC;
        if (run == 0 || ms < best) best = ms;
    }
    if (runs > 1) fprintf(stderr, "%.3f ms, the fastest of %d runs\n", best, runs);
    for (int i = 0; i < NETWORK_OUTPUTS; ++i) {
        const char *path = argv[2 + NETWORK_INPUTS + i];
        FILE *file = fopen(path, "wb");
        if (!file || fwrite(outputs[i], 1, output_bytes[i], file) != output_bytes[i] || fclose(file)) {
            fprintf(stderr, "%s cannot be written\n", path);
            return 1;
        }
        free(outputs[i]);
    }
    for (int i = 0; i < NETWORK_INPUTS; ++i) free(inputs[i]);
#ifdef NETWORK_PREPARED
    network_free(prepared);
#else
    free(arena);
#endif
    free(weights);
    return 0;
}
