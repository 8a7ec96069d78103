// The machine's limit: belief propagation written by hand for one thread, with nothing but the
// arithmetic. Compiled by the benchmarks with -O3 -march=native; no part of the library.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

// Parallel sweeps of binary pairwise BP in the one-division ratio form. Messages lie by receiver.
extern "C" void binary_sweeps(size_t nodes, const uint32_t* start, const uint32_t* reverse,
                              const double* k, const double* field, double* r, double* out,
                              int sweeps) {
    for (int s = 0; s < sweeps; ++s) {
        for (size_t i = 0; i < nodes; ++i) {
            const uint32_t lo = start[i], hi = start[i + 1];
            double a = field[i];
            for (uint32_t e = lo; e < hi; ++e) a *= r[e];
            for (uint32_t e = lo; e < hi; ++e)
                out[reverse[e]] = (k[e] * a + r[e]) / (k[e] * r[e] + a);
        }
        std::swap(r, out);
    }
}

// Parallel sweeps on factors that all have the same order and all variables K states, with unary
// factors folded into `field` (nodes x K). Message of edge e at e * K; edges of factor a are
// a * order .. a * order + order - 1; `edges` lists the edges of each variable.
extern "C" void table_sweeps(size_t nodes, size_t factors, size_t order, size_t K,
                             const uint32_t* start, const uint32_t* edges, const double* field,
                             const double* tables, double* m, double* nu, int sweeps) {
    size_t entries = 1;
    for (size_t k = 0; k < order; ++k) entries *= K;
    std::vector<double> weights(entries), sums(entries), run(K);
    for (int s = 0; s < sweeps; ++s) {
        for (size_t i = 0; i < nodes; ++i) {
            const uint32_t lo = start[i], hi = start[i + 1];
            std::copy(field + i * K, field + (i + 1) * K, run.begin());
            for (uint32_t j = lo; j < hi; ++j) {
                double* out = nu + size_t(edges[j]) * K;
                const double* in = m + size_t(edges[j]) * K;
                for (size_t x = 0; x < K; ++x) { out[x] = run[x]; run[x] *= in[x]; }
            }
            std::fill(run.begin(), run.end(), 1.0);
            for (uint32_t j = hi; j-- > lo;) {
                double* out = nu + size_t(edges[j]) * K;
                const double* in = m + size_t(edges[j]) * K;
                double total = 0;
                for (size_t x = 0; x < K; ++x) { out[x] *= run[x]; total += out[x]; run[x] *= in[x]; }
                const double scale = 1 / total;
                for (size_t x = 0; x < K; ++x) out[x] *= scale;
            }
        }
        for (size_t a = 0; a < factors; ++a) {
            const double* in = nu + a * order * K;
            double* out = m + a * order * K;
            // weights: products of the messages before each variable, end to end
            weights[0] = 1;
            size_t begin = 0, size = 1;
            for (size_t k = 0; k + 1 < order; ++k) {
                for (size_t p = 0; p < size; ++p)
                    for (size_t x = 0; x < K; ++x)
                        weights[begin + size + p * K + x] = weights[begin + p] * in[k * K + x];
                begin += size;
                size *= K;
            }
            const double* source = tables + a * entries;
            double* shorter = sums.data();
            for (size_t k = order; k-- > 0;) {
                double* o = out + k * K;
                const double* n = in + k * K;
                std::fill(o, o + K, 0.0);
                for (size_t p = 0; p < size; ++p) {
                    const double w = weights[begin + p];
                    const double* row = source + p * K;
                    double total = 0;
                    for (size_t x = 0; x < K; ++x) { total += row[x] * n[x]; o[x] += w * row[x]; }
                    shorter[p] = total;
                }
                double total = 0;
                for (size_t x = 0; x < K; ++x) total += o[x];
                const double scale = 1 / total;
                for (size_t x = 0; x < K; ++x) o[x] *= scale;
                source = shorter;
                shorter += size;
                if (k > 0) { size /= K; begin -= size; }
            }
        }
    }
}
