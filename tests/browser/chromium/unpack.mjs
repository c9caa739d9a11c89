// Unpack Chromium into the folder of the first argument, as the file `chromium`.
process.env.TMPDIR = process.argv[2];
const { default: chromium } = await import("@sparticuz/chromium");
await chromium.executablePath();
