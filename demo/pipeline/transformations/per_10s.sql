-- Ten seconds of each kind. An event may come half a minute late; later ones are in `events` all the same.
CREATE STREAMING TABLE per_10s AS
SELECT kind, window.start AS began, count(*) AS events, sum(cents) AS cents
FROM STREAM events WATERMARK time DELAY OF INTERVAL 30 SECONDS
GROUP BY kind, window(time, '10 seconds')
