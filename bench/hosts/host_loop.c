/* Calls of opkit_host.h from C, for hosts.py: a loop over opkit_host_run, and the plain loop in C
 * that computes the same. Both return the seconds of all calls. */
#define _POSIX_C_SOURCE 199309L
#include <opkit/abi/opkit_host.h>
#include <time.h>

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* Returns -1 if a call fails. */
double bench_host_run(opkit_host_operator* op, const opkit_dl_tensor* const* inputs,
                      const opkit_dl_tensor* const* outputs, int64_t calls) {
  const double begin = now();
  int64_t i;
  for (i = 0; i < calls; ++i)
    if (opkit_host_run(op, 2, inputs, 1, outputs, NULL) != OPKIT_OK) return -1;
  return now() - begin;
}

static void axpy(float alpha, const float* x, const float* y, float* z, int64_t n) {
  int64_t i;
  for (i = 0; i < n; ++i) z[i] = alpha * x[i] + y[i];
}

double bench_plain_loop(const float* x, const float* y, float* z, int64_t n, int64_t calls) {
  /* A volatile pointer keeps the compiler from leaving calls out. */
  void (*volatile function)(float, const float*, const float*, float*, int64_t) = axpy;
  const double begin = now();
  int64_t i;
  for (i = 0; i < calls; ++i) function(2, x, y, z, n);
  return now() - begin;
}
