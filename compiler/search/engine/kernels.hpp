// Inner loops over the rows of tables of numbers.
#pragma once

#include <cstddef>

namespace tensoropt::search {

// out[x] = min over v of a[v * stride + x] + sum[v].
void min_one(double* out, const double* a, std::size_t stride, const double* sum,
             std::size_t values, std::size_t n);

// out[r * n + x] = min over v of a[v * stride_a + x] + sum[v * stride_sum + r],
// for r < m and x < n.
void min_product(double* out, const double* a, std::size_t stride_a, const double* sum,
                 std::size_t stride_sum, std::size_t values, std::size_t m, std::size_t n);

// out[x] = min over v of a[v * stride_a + x] + b[v * stride_b + x] + sum[v].
void min_two(double* out, const double* a, std::size_t stride_a, const double* b,
             std::size_t stride_b, const double* sum, std::size_t values, std::size_t n);

// into[v] += a[v * stride].
void add_strided(double* into, const double* a, std::size_t stride, std::size_t n);

void add_row(double* into, const double* a, std::size_t n);

// into = a + b + sum.
void set_sum(double* into, const double* a, const double* b, double sum, std::size_t n);

// into = a + sum.
void set_plus(double* into, const double* a, double sum, std::size_t n);

// into = min(into, a).
void min_row(double* into, const double* a, std::size_t n);

// into = min(into, a + b + sum); returns the least of the totals.
double lower_row(double* into, const double* a, const double* b, double sum, std::size_t n);

double least(const double* a, std::size_t n);

}  // namespace tensoropt::search
