// Serves HTTP with node's own library, and computes what V8 compiles while it runs.
const http = require('node:http');

function fibonacci(n) {
    return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2);
}

http.createServer((asked, answer) => {
    const text = asked.url === '/compute' ? fibonacci(20) : asked.url;
    answer.end(`node: ${text}\n`);
}).listen(80);
